// Folds the trials of a search and the steps of a pipeline's run into one row: its best run, and how far it is.
import type { Run } from "../../runs.ts";
import { FAILED } from "../../statuses.ts";

const STUDY = "pai-sdk-study";
const PIPELINE = "pai-sdk-pipeline-run";

type Outcome = "done" | "running" | "failed" | "stopped" | "pruned" | "waiting";
type Counts = Record<Outcome, number>;

interface Objective {
  metric: string;
  isMax: boolean;
  fact: "last" | "min" | "max"; // the value of a trial that counts
}

export interface Group {
  key: string; // in the address and of the row: `study:ID`, `pipeline:ID`
  isStudy: boolean;
  id: string;
  name: string;
  runs: readonly Run[]; // one for each trial or step, in the order of the list
  all: readonly string[]; // the ids of all jobs, also of those that were lost and submitted again
  counts: Counts;
  total: number; // as far as the search has said it
  objective: Objective | undefined;
  best: Run | undefined;
}

/** A row of the list: a run, perhaps one within a group that is open, or a group. */
export type Row = Run & { group?: Group; isWithin?: boolean };

/** The rows of a list of runs. A group stands where its first run stands; `open` has the keys of those whose runs are shown. */
export function fold(runs: readonly Run[], tags: readonly string[], open: ReadonlySet<string>): Row[] {
  const members = new Map<string, Run[]>();
  for (const run of runs) {
    const key = keyOf(run);
    if (!key) continue;
    const others = members.get(key);
    if (others) others.push(run);
    else members.set(key, [run]);
  }
  const rows: Row[] = [];
  for (const run of runs) {
    const key = keyOf(run);
    const all = members.get(key) ?? [];
    if (all.length < 2) rows.push(run);
    else if (all[0] === run) {
      const group = groupOf(key, all, tags);
      rows.push(rowOf(group, all));
      if (open.has(key)) rows.push(...all.map((one) => ({ ...one, isWithin: true })));
    }
  }
  return rows;
}

export function groupOf(key: string, all: readonly Run[], tags: readonly string[]): Group {
  const at = key.indexOf(":");
  const isStudy = key.startsWith("study:");
  const runs = lastAttempts(all, isStudy ? "pai-sdk-trial" : "pai-sdk-step");
  const labels = newest(all).labels ?? {};
  const counts: Counts = { done: 0, running: 0, failed: 0, stopped: 0, pruned: 0, waiting: 0 };
  for (const run of runs) counts[outcomeOf(run)] += 1;
  const objective = isStudy ? objectiveOf(labels["pai-sdk-objective"]) : undefined;
  return {
    key,
    isStudy,
    id: key.slice(at + 1),
    name: (isStudy ? "" : labels["pai-sdk-pipeline"]) || commonName(runs),
    runs,
    all: all.map(({ id }) => id),
    counts,
    total: isStudy ? Math.max(runs.length, Number(labels["pai-sdk-trials"]) || 0) : runs.length,
    objective,
    best: objective && bestOf(runs, objective, tags),
  };
}

export function outcomeOf(run: Run): Outcome {
  const { status = "" } = run;
  if (run.labels?.["pai-sdk-pruned"] !== undefined) return "pruned";
  if (status === "Succeed") return "done";
  if (status === "Terminated" || status === "Terminating") return "stopped";
  return FAILED.has(status) ? "failed" : status === "Running" ? "running" : "waiting";
}

/** Reads the label that a search gives its trials: `minimize loss`, `maximize acc at best`. */
export function objectiveOf(label: string | undefined): Objective | undefined {
  const [, direction, metric, at] = /^(minimize|maximize) (.+?)(?: at (best|-?\d+))?$/.exec(label ?? "") ?? [];
  const isMax = direction === "maximize";
  return metric ? { metric, isMax, fact: at !== "best" ? "last" : isMax ? "max" : "min" } : undefined;
}

export function valueOf(run: Run, { metric, fact }: Objective, tags: readonly string[]): number | undefined {
  return run[fact]?.[tags.indexOf(metric)] ?? undefined;
}

/** The best of the trials that are complete; of equal ones the first. */
function bestOf(runs: readonly Run[], objective: Objective, tags: readonly string[]): Run | undefined {
  let [best, bestValue] = [undefined as Run | undefined, objective.isMax ? -Infinity : Infinity];
  for (const run of runs) {
    const value = outcomeOf(run) === "done" ? valueOf(run, objective, tags) : undefined;
    if (value === undefined || (objective.isMax ? value <= bestValue : value >= bestValue)) continue;
    [best, bestValue] = [run, value];
  }
  return best;
}

/** The newest job of each trial or step: one that was lost by an interruption was submitted again. */
function lastAttempts(runs: readonly Run[], label: string): Run[] {
  const last = new Map<string, Run>();
  for (const run of runs) {
    const name = run.labels?.[label] ?? run.id;
    const other = last.get(name);
    if (!other || (other.created_at ?? 0) < (run.created_at ?? 0)) last.set(name, run);
  }
  const kept = new Set(last.values());
  return runs.filter((run) => kept.has(run));
}

function newest(runs: readonly Run[]): Run {
  return runs.reduce((one, other) => ((other.created_at ?? 0) > (one.created_at ?? 0) ? other : one));
}

// `digits-0`, `digits-11-x2k7`: what all names begin with, without the number.
function commonName(runs: readonly Run[]): string {
  const names = runs.map(({ name, id }) => name ?? id);
  let [common = ""] = names;
  for (const name of names) while (!name.startsWith(common)) common = common.slice(0, -1);
  return common.replace(/[-_.\s\d]+$/, "") || common || (names[0] ?? "");
}

const OF_ONE = ["started_at", "ended_at", "cause", "cost", "error", "damaged", "queue_place", "sub_status", "waits_for"] as const;
const OF_BEST = ["last", "min", "max", "nan", "nonfinite", "hparams"] as const;

// The row has the values of the best run, so that its columns can be compared with those of other rows; and the times and
// the cost of all.
function rowOf(group: Group, all: readonly Run[]): Row {
  const { counts, best } = group;
  const latest = newest(all);
  const isActive = counts.running + counts.waiting > 0;
  const status = counts.running > 0 ? "Running" : isActive ? (latest.status ?? "") : counts.failed > 0 && counts.done === 0 ? "Failed" : "Succeed";
  const row: Row = { ...(best ?? latest), id: group.key, name: group.name, status, labels: common(all), group };
  for (const name of best ? OF_ONE : [...OF_ONE, ...OF_BEST]) delete row[name];
  const of = (name: "started_at" | "ended_at" | "cost"): number[] => all.flatMap((run) => run[name] ?? []);
  const [starts, ends, costs] = [of("started_at"), of("ended_at"), of("cost")];
  if (starts.length > 0) row.started_at = Math.min(...starts);
  if (!isActive && ends.length > 0) row.ended_at = Math.max(...ends);
  const currencies = new Set(all.flatMap(({ cost, currency }) => (cost === undefined ? [] : [currency])));
  if (currencies.size === 1) Object.assign(row, { cost: Number(costs.reduce((one, other) => one + other).toFixed(4)), currency: [...currencies][0] });
  return row;
}

function common(runs: readonly Run[]): Record<string, string> {
  return Object.fromEntries(Object.entries(runs[0]?.labels ?? {}).filter(([name, value]) => runs.every(({ labels }) => labels?.[name] === value)));
}

function keyOf({ labels = {} }: Run): string {
  const { [STUDY]: study, [PIPELINE]: pipeline } = labels;
  return study ? `study:${study}` : pipeline ? `pipeline:${pipeline}` : "";
}
