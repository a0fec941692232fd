// What the routes of one run and its job respond with. Times are seconds since 1970.
import type { Annotations } from "../../parts/annotations.tsx";
import type { Run } from "../../runs.ts";

export interface Tag {
  tag: string;
  kind: string;
  count: number;
  first_step?: number;
  last?: { wall: number; step: number; value: number | string | null };
  min?: number | string | null;
  max?: number | string | null;
  nan_count?: number;
  inf_count?: number;
}

export interface RunDetail extends Omit<Run, "tags"> {
  tags: Tag[];
  parts?: string[]; // of `log`, `files`, `trace` those that are not empty
}

export interface Failure {
  cause: string;
  explanation: string;
  advice: string;
  exit_code: number | null;
  instance: string | null;
  last_lines: string[];
  traceback?: string | null;
}

export interface Instance {
  name: string;
  status: string;
  exit_code?: number | null;
  started_at: number | null;
  ended_at: number | null;
  node?: string | null;
}

interface JobSummary {
  command: string;
  algorithm: string;
  image: string;
  tasks: { name: string; count: number; instance_type: string; image: string }[];
  code: string;
  repository: string;
  commit: string;
  branch: string;
  has_changes: boolean;
  inputs: Record<string, string>;
  outputs: Record<string, string>;
  workspace: string;
  priority: number;
  max_runtime_s: number | null;
}

export interface JobDetail {
  status: string;
  sub_status?: string | null;
  message: string;
  queue_place: number | null;
  queued_s?: number | null;
  created_at: number | null;
  started_at: number | null;
  ended_at: number | null;
  history: { status: string; time: number; text: string }[];
  events: { time: number; text: string; kind: string }[];
  failure: Failure | null;
  instances: Instance[];
  request: Record<string, unknown>;
  summary: JobSummary;
  labels: Record<string, string>;
  owner: string;
  rules?: Rule[];
  annotations?: Annotations | null;
  can: string[];
}

export interface Finding {
  message: string;
  instance: string | null;
  since: number;
  cleared_at: number | null;
  is_open: boolean;
  lines: string[];
  stack: string[];
  points: (number | string | null)[][];
  values: Record<string, number | string>;
}

export interface Rule {
  code: string;
  action: string;
  settings: Record<string, unknown>;
  findings: Finding[];
}

export interface Mark {
  kind: "status" | "event" | "checkpoint" | "not_finite";
  text: string;
  time: number | null;
  step: number | null;
}

export interface UsageOfInstance {
  name: string;
  times: number[];
  cpu: (number | null)[];
  memory_bytes: (number | null)[];
  gpu: (number | null)[];
  gpu_memory: (number | null)[];
}

export interface Usage {
  instances: UsageOfInstance[];
  limits: { cpu: number | null; memory_bytes: number | null };
}

export interface Entry {
  name: string;
  is_folder: boolean;
  size_bytes: number | null;
  modified_at: number | null;
  is_partial?: boolean;
}

export interface Files {
  path: string;
  uri?: string;
  entries: Entry[];
  truncated: boolean;
}

export interface TraceRows {
  tables: string[];
  table: string;
  columns: { name: string; type: string }[];
  rows: unknown[][];
  total: number;
}

export interface Difference {
  path: string;
  before?: unknown;
  after?: unknown;
  kind: "added" | "removed" | "changed";
  group: "hyperparameter" | "setting" | "unique";
}

export type FormValue = string | number | boolean | null | Record<string, string | number | boolean | null>;

export interface RerunForm {
  fields: Record<string, FormValue>;
  short_names: Record<string, string>; // of hyperparameters, in names of jobs
  request: Record<string, unknown>;
}
