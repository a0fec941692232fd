// The columns of the list: hyperparameters, labels and metrics, as the address names them (`cols=lr,loss.min`).
import { number } from "../../format.ts";
import type { Run, RunList } from "../../runs.ts";

export interface Column {
  key: string; // as filters and orders name it: `hparams.lr`, `labels.team`, `metrics.eval/acc.max`
  title: string;
  isNumber: boolean;
  text: (run: Run) => string;
  isOdd?: (run: Run) => boolean; // NaN or infinite
  oddPoints?: (run: Run) => number; // how many points of the metric are that
}

const MOST_METRICS = 4;
const MOST_OTHERS = 4;
const MOST_LABELS = 2;
const JUDGING = /loss|acc|error|score|reward/i; // metrics by which runs are judged, before learning rates and the like
const OURS = /^(pai-sdk|git)-/; // labels of the SDK: they tell submissions and code apart
const [LEAST_PIXELS, MOST_PIXELS] = [80, 288];
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

/** The columns of a list that nobody has chosen: labels, what differs between the runs, and the metrics that most have. */
export function usualKeys(list: RunList): string[] {
  const labels = new Map<string, number>();
  const values = new Map<string, { known: Set<string>; runs: number }>();
  let configured = 0; // runs that have hyperparameters at all
  for (const run of list.runs) {
    for (const name of Object.keys(run.labels ?? {})) if (!OURS.test(name)) labels.set(name, (labels.get(name) ?? 0) + 1);
    if (run.hparams) configured += 1;
    for (const [name, value] of Object.entries(run.hparams ?? {})) {
      const one = values.get(name) ?? { known: new Set(), runs: 0 };
      one.known.add(written(value));
      values.set(name, { known: one.known, runs: one.runs + 1 });
    }
  }
  const common = [...labels].sort(([, one], [, other]) => other - one);
  const differing = [...values].filter(([, { known, runs }]) => known.size > 1 || runs < configured);
  const counts = list.tags.map((tag, at) => ({
    tag,
    runs: list.runs.reduce((sum, run) => sum + (hasValue(run, at) ? 1 : 0), 0),
  }));
  counts.sort((one, other) => other.runs - one.runs || Number(JUDGING.test(other.tag)) - Number(JUDGING.test(one.tag)));
  return [
    ...common.slice(0, MOST_LABELS).map(([name]) => `labels.${name}`),
    ...counts.filter(({ runs }) => runs > 0).slice(0, MOST_METRICS).map(({ tag }) => `metrics.${tag}`),
    ...differing.slice(0, MOST_OTHERS).map(([name]) => `hparams.${name}`),
  ];
}

export function columnOf(key: string, list: RunList): Column {
  const [group, name] = splitKey(key);
  if (group === "hparams") {
    const isNumber = list.runs.every((run) => typeof (run.hparams?.[name] ?? 0) === "number");
    return { key, title: name, isNumber, text: (run) => (name in (run.hparams ?? {}) ? written(run.hparams?.[name]) : "") };
  }
  if (group === "labels") return { key, title: name, isNumber: false, text: (run) => run.labels?.[name] ?? "" };
  const [tag, fact] = factOf(name, list.tags);
  const at = list.tags.indexOf(tag);
  return {
    key,
    title: fact === "last" ? tag : `${tag} ${fact}`,
    isNumber: true,
    text: (run) => metricText(run, at, fact),
    isOdd: (run) => oddText(run, at, fact) !== "",
    oddPoints: (run) => run.nan?.[at] ?? 0,
  };
}

/** The width of a column in pixels, from its longest text: the rows on the screen alone would make it jump. */
export function widthOf(title: string, texts: Iterable<string>): number {
  let longest = 0;
  for (const text of texts) longest = Math.max(longest, text.length);
  const wanted = Math.max(longest * 8.2, title.length * 7.6 + 20) + 24;
  return Math.min(MOST_PIXELS, Math.max(LEAST_PIXELS, Math.ceil(wanted / 16) * 16));
}

/** `eval/acc.max` as tag and fact; a tag may have such an ending itself. */
export function factOf(name: string, tags: readonly string[]): [string, Fact] {
  const at = name.lastIndexOf(".");
  const ending = name.slice(at + 1) as Fact;
  if (at > 0 && !tags.includes(name) && FACTS.includes(ending)) return [name.slice(0, at), ending];
  return [name, "last"];
}

/** A key as the grammar of filters has it: names with blanks or operators stand in quotes. Orders take it as it is. */
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
