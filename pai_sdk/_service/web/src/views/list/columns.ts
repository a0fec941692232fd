// The columns of the list: hyperparameters, labels and metrics, as the address names them (`cols=lr,loss.min`).
import { untracked } from "@preact/signals";
import { duration, number } from "../../format.ts";
import { now } from "../../parts/clock.ts";
import type { Run, RunList } from "../../runs.ts";
import { said } from "../../service_texts.ts";
import { ENDED } from "../../statuses.ts";
import { chinese, t } from "../../words.ts";
import { formatOf } from "./numbers.ts";

export interface Column {
  key: string; // as filters and orders name it: `hparams.lr`, `labels.team`, `metrics.eval/acc.max`
  title: string;
  isNumber: boolean;
  text: (run: Run) => string;
  exact?: (run: Run) => string; // where the text is rounded
  isOdd?: (run: Run) => boolean; // NaN or infinite
  oddPoints?: (run: Run) => number; // how many points of the metric are that
}

const MOST_METRICS = 4;
const MOST_OTHERS = 4;
const MOST_LABELS = 2;
const LATER: Readonly<Record<string, number>> = { hparams: 0.5, labels: 1.5 }; // than as many metrics, where there is no room for all
const JUDGING = /loss|acc|error|score|reward/i; // metrics by which runs are judged, before learning rates and the like
const OURS = /^(pai-sdk|git)-/; // labels of the SDK: they tell submissions and code apart
const [LEAST_PIXELS, MOST_PIXELS] = [72, 288];
const PADDING = 24; // of a cell, as in list.css
const ARROW = 36; // of a heading: its padding, and the sign of the order
const MEASURED = 3; // texts of a column, those with most letters
const WIDE = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]/g; // twice as wide as others

/** Columns that need no group: what a job is, and what became of it. */
const JOB: Readonly<Record<string, (run: Run) => string>> = {
  cause: causeOf,
  duration: (run) => {
    const seconds = secondsOf(run);
    return seconds === undefined ? "" : duration(seconds);
  },
  owner: (run) => run.owner ?? "",
  cost: (run) => String(run.cost ?? ""),
  tags: (run) => run.tags?.join(", ") ?? "",
  note: (run) => run.note ?? "",
  instance_type: (run) => [run.instance_type, (run.instance_count ?? 1) > 1 && `× ${run.instance_count}`].filter(Boolean).join(" "),
};
export const FACTS = ["last", "min", "max"] as const;
type Fact = (typeof FACTS)[number];

/** Why a job failed: names of instances stand without the id of their job, which says nothing here. */
export function causeOf({ id, cause = "" }: Run): string {
  return said(cause.replaceAll(`${id}-`, ""));
}

/** Whether a run has ended, as far as is known. */
export function isOver(run: Run): boolean {
  return run.status === undefined || run.status === "Unknown" || ENDED.has(run.status);
}

/** How long a run took so far, or until its end, in seconds; undefined before it starts. */
export function secondsOf(run: Run): number | undefined {
  if (run.started_at === undefined) return undefined;
  return Math.max(0, (run.ended_at ?? (isOver(run) ? run.updated_at : undefined) ?? now.value) - run.started_at);
}

const knownKeys = new WeakMap<RunList, string[]>(); // thousands of runs are not gone through for each drawing

/** All keys that a column can have: those of the runs of the list. */
export function keysOf(list: RunList): string[] {
  const known = knownKeys.get(list) ?? keysIn(list);
  knownKeys.set(list, known);
  return known;
}

function keysIn(list: RunList): string[] {
  const hparams = new Set<string>();
  const labels = new Set<string>();
  for (const run of list.runs) {
    for (const name of Object.keys(run.hparams ?? {})) hparams.add(`hparams.${name}`);
    for (const name of Object.keys(run.labels ?? {})) labels.add(`labels.${name}`);
  }
  const labelled = (isOurs: boolean): string[] => [...labels].filter((key) => OURS.test(splitKey(key)[1]) === isOurs).sort();
  return [...jobKeysOf(list), ...labelled(false), ...[...hparams].sort(), ...list.tags.map((tag) => `metrics.${tag}`), ...labelled(true)];
}

function jobKeysOf({ runs }: RunList): string[] {
  return untracked(() => Object.keys(JOB).filter((key) => runs.some((run) => JOB[key]?.(run))));
}

/** The columns of a list that nobody has chosen: labels, what differs between the runs, and the metrics that most have. */
export function usualKeys(list: RunList): string[] {
  const owners = new Set(list.runs.map((run) => run.owner));
  const labels: Values = new Map();
  const values: Values = new Map();
  let configured = 0; // runs that have hyperparameters at all
  for (const run of list.runs) {
    for (const [name, value] of Object.entries(run.labels ?? {})) if (!OURS.test(name)) addTo(labels, name, value);
    if (run.hparams) configured += 1;
    for (const [name, value] of Object.entries(run.hparams ?? {})) addTo(values, name, written(value));
  }
  // What is the same in all rows tells nothing apart.
  const common = [...labels].filter(([, { known, runs }]) => known.size > 1 || runs < list.runs.length || runs === 1);
  common.sort(([, one], [, other]) => other.runs - one.runs);
  const differing = [...values].filter(([, { known, runs }]) => known.size > 1 || runs < configured);
  const counts = list.tags.map((tag, at) => ({
    tag,
    runs: list.runs.reduce((sum, run) => sum + (hasValue(run, at) ? 1 : 0), 0),
  }));
  counts.sort((one, other) => other.runs - one.runs || Number(JUDGING.test(other.tag)) - Number(JUDGING.test(one.tag)));
  return [
    ...jobKeysOf(list).filter((key) => key !== "note" && (key !== "owner" || owners.size > 1)),
    ...common.slice(0, MOST_LABELS).map(([name]) => `labels.${name}`),
    ...counts.filter(({ runs }) => runs > 0).slice(0, MOST_METRICS).map(({ tag }) => `metrics.${tag}`),
    ...differing.slice(0, MOST_OTHERS).map(([name]) => `hparams.${name}`),
  ];
}

/** Those of the usual columns that have room, in pixels; the first ones of each group tell most, and `first` has to be there. */
export function fitting(keys: readonly string[], widths: readonly number[], room: number, first: string): Set<string> {
  const counts: Record<string, number> = {};
  const ranked = keys.map((key, at) => {
    const [group] = splitKey(key);
    const place = group ? (counts[group] = (counts[group] ?? -1) + 1) : Object.keys(JOB).indexOf(key) / 3;
    return { key, width: widths[at] as number, rank: key === first ? -1 : place + (LATER[group] ?? 0) };
  });
  let left = room;
  const kept = ranked.sort((one, other) => one.rank - other.rank).filter(({ width, rank }) => (width <= left || rank < 0) && ((left -= width), true));
  return new Set(kept.map(({ key }) => key));
}

type Values = Map<string, { known: Set<string>; runs: number }>;

/** Counts a run that has a value, and the different values. */
function addTo(values: Values, name: string, value: string): void {
  const one = values.get(name) ?? { known: new Set(), runs: 0 };
  one.known.add(value);
  values.set(name, { known: one.known, runs: one.runs + 1 });
}

export function columnOf(key: string, list: RunList): Column {
  const { runs } = list;
  const [group, name] = splitKey(key);
  if (key === "cost") {
    const [currency, ...others] = new Set(runs.flatMap((run) => run.currency ?? []));
    const column = numbers({ key, title: currency && others.length === 0 ? `${titleOf(key)} (${currency})` : titleOf(key) }, runs, (run) => run.cost);
    return runs.some(({ cost = 0 }) => cost >= 1) ? { ...column, text: ({ cost }) => cost?.toFixed(2) ?? "" } : column;
  }
  if (Object.hasOwn(JOB, key)) return { key, title: titleOf(key), isNumber: key === "duration", text: JOB[key] as Column["text"] };
  if (group === "hparams") {
    const values = runs.map((run) => run.hparams?.[name]);
    if (values.every((value) => value === undefined || isNumeric(value))) return numbers({ key, title: name }, runs, (run) => run.hparams?.[name] as string | number | undefined);
    return { key, title: name, isNumber: false, text: (run) => (name in (run.hparams ?? {}) ? written(run.hparams?.[name]) : "") };
  }
  if (group === "labels") return { key, title: name, isNumber: false, text: (run) => run.labels?.[name] ?? "" };
  const [tag, fact] = factOf(name, list.tags);
  const at = list.tags.indexOf(tag);
  const column = numbers({ key, title: fact === "last" ? tag : `${tag} ${fact}` }, runs, (run) => run[fact]?.[at]);
  return {
    ...column,
    text: (run) => oddText(run, at, fact) || column.text(run),
    isOdd: (run) => oddText(run, at, fact) !== "",
    oddPoints: (run) => run.nan?.[at] ?? 0,
  };
}

/** A column of numbers, which have the same decimals in all rows. */
function numbers(column: { key: string; title: string }, runs: readonly Run[], valueOf: (run: Run) => string | number | null | undefined): Column & { exact: (run: Run) => string } {
  const exact = (run: Run): string => String(valueOf(run) ?? "");
  const format = formatOf(runs.flatMap((run) => (exact(run) === "" ? [] : [Number(exact(run))])));
  return { ...column, isNumber: true, exact, text: (run) => (exact(run) === "" ? "" : format(Number(exact(run)))) };
}

/** What a heading says for a key without a group. */
export function titleOf(key: string): string {
  return { cause: t("Cause"), duration: t("Duration"), owner: t("Owner"), instance_type: t("Instances"), cost: t("Cost"), tags: t("Tags"), note: t("Note") }[key] ?? splitKey(key)[1];
}

/** The width of a column in pixels, from its longest texts: the rows on the screen alone would make it jump. */
export function widthOf(title: string, texts: Iterable<string>, measure = measured, most = MOST_PIXELS): number {
  const longest: [number, string][] = [];
  for (const text of texts) {
    const length = text.length + (text.match(WIDE)?.length ?? 0);
    if (longest.length === MEASURED && length <= (longest[MEASURED - 1] as [number, string])[0]) continue;
    longest.push([length, text]);
    longest.sort(([one], [other]) => other - one);
    longest.length = Math.min(longest.length, MEASURED);
  }
  const wanted = Math.max(measure(title) + ARROW, ...longest.map(([, text]) => measure(text) + PADDING));
  return Math.min(most, Math.max(LEAST_PIXELS, Math.ceil(wanted / 8) * 8));
}

let canvas: CanvasRenderingContext2D | null | undefined;
const widths = new Map<string, number>();

function measured(text: string): number {
  if (!canvas) {
    canvas = document.createElement("canvas").getContext("2d") as CanvasRenderingContext2D;
    canvas.font = getComputedStyle(document.body).font;
  }
  if (widths.size > 10_000) widths.clear();
  const width = widths.get(text) ?? canvas.measureText(text).width;
  widths.set(text, width);
  return width;
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
  if (at < 0) return ["", key];
  return [key.slice(0, at), key.slice(at + 1)];
}

function hasValue(run: Run, at: number): boolean {
  return (run.last?.[at] ?? null) !== null || oddText(run, at, "last") !== "";
}

function oddText(run: Run, at: number, fact: Fact): string {
  const odd = run.nonfinite?.[fact] ?? {};
  const kind = Object.keys(odd).find((name) => odd[name]?.includes(at));
  return kind === undefined ? "" : kind === "nan" ? "NaN" : kind === "inf" ? "∞" : "−∞";
}

// A job's hyperparameters are strings.
function isNumeric(value: unknown): boolean {
  return typeof value === "number" || (typeof value === "string" && value.trim() !== "" && Number.isFinite(Number(value)));
}

function written(value: unknown): string {
  if (typeof value === "number") return number(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}

chinese({
  "Cause": "原因",
  "Duration": "时长",
  "Owner": "所有者",
  "Instances": "实例",
  "Cost": "费用",
  "Tags": "标记",
  "Note": "备注",
});
