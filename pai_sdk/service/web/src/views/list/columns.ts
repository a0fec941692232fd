// The columns of the list: hyperparameters, labels and metrics, as the address names them (`cols=lr,loss.min`).
import { number } from "../../format.ts";
import type { Run, RunList } from "../../runs.ts";

export interface Column {
  key: string; // as filters and orders name it: `hparams.lr`, `labels.team`, `metrics.eval/acc.max`
  title: string;
  isNumber: boolean;
  text: (run: Run) => string;
  isOdd?: (run: Run) => boolean; // NaN or infinite
}

const MOST_METRICS = 4;
const MOST_OTHERS = 4;
export const FACTS = ["last", "min", "max"] as const;
type Fact = (typeof FACTS)[number];

/** All keys that a column can have: those of the runs of the list. */
export function keysOf(list: RunList): string[] {
  const hparams = new Set<string>();
  const labels = new Set<string>();
  for (const run of list.runs) {
    for (const name of Object.keys(run.hparams ?? {})) hparams.add(`hparams.${name}`);
    for (const name of Object.keys(run.labels ?? {})) labels.add(`labels.${name}`);
  }
  return [...[...labels].sort(), ...[...hparams].sort(), ...list.tags.map((tag) => `metrics.${tag}`)];
}

/** The columns of a list that nobody has chosen: what differs between the runs, and the metrics that most have. */
export function usualKeys(list: RunList): string[] {
  const values = new Map<string, Set<string>>();
  for (const run of list.runs) {
    for (const [name, value] of Object.entries(run.hparams ?? {})) {
      const key = `hparams.${name}`;
      const known = values.get(key) ?? new Set();
      values.set(key, known.add(written(value)));
    }
  }
  const differing = [...values].filter(([, known]) => known.size > 1).map(([key]) => key);
  const counts = list.tags.map((tag, at) => ({
    tag,
    runs: list.runs.reduce((sum, run) => sum + (hasValue(run, at) ? 1 : 0), 0),
  }));
  counts.sort((one, other) => other.runs - one.runs);
  const metrics = counts.filter(({ runs }) => runs > 0).slice(0, MOST_METRICS);
  return [...differing.slice(0, MOST_OTHERS), ...metrics.map(({ tag }) => `metrics.${tag}`)];
}

export function columnOf(key: string, tags: readonly string[]): Column {
  const [group, name] = splitKey(key);
  if (group === "hparams") {
    return { key, title: name, isNumber: true, text: (run) => (name in (run.hparams ?? {}) ? written(run.hparams?.[name]) : "") };
  }
  if (group === "labels") return { key, title: name, isNumber: false, text: (run) => run.labels?.[name] ?? "" };
  const [tag, fact] = factOf(name, tags);
  const at = tags.indexOf(tag);
  const title = fact === "last" ? tag : `${tag} ${fact}`;
  return { key, title, isNumber: true, text: (run) => metricText(run, at, fact), isOdd: (run) => oddText(run, at, fact) !== "" };
}

/** `eval/acc.max` as tag and fact; a tag may have such an ending itself. */
export function factOf(name: string, tags: readonly string[]): [string, Fact] {
  const at = name.lastIndexOf(".");
  const ending = name.slice(at + 1) as Fact;
  if (at > 0 && !tags.includes(name) && FACTS.includes(ending)) return [name.slice(0, at), ending];
  return [name, "last"];
}

/** A key as the grammar of filters has it: names with blanks or operators stand in quotes. */
export function quoted(key: string): string {
  const [group, name] = splitKey(key);
  return `${group}.${/[\s=<>!~,"']/.test(name) ? `"${name.replace(/["\\]/g, "\\$&")}"` : name}`;
}

export function splitKey(key: string): [string, string] {
  const at = key.indexOf(".");
  return [key.slice(0, at), key.slice(at + 1)];
}

function hasValue(run: Run, at: number): boolean {
  return (run.last?.[at] ?? null) !== null || oddText(run, at, "last") !== "";
}

function metricText(run: Run, at: number, fact: Fact): string {
  return oddText(run, at, fact) || number(run[fact]?.[at]);
}

function oddText(run: Run, at: number, fact: Fact): string {
  const odd = run.nonfinite?.[fact] ?? {};
  const kind = Object.keys(odd).find((name) => odd[name]?.includes(at));
  return kind === undefined ? "" : kind === "nan" ? "NaN" : kind === "inf" ? "∞" : "−∞";
}

function written(value: unknown): string {
  if (typeof value === "number") return number(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}
