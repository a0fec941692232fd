// Comparisons of runs: what is asked of the service, and its answers as curves.
import type { Column, Columns } from "../columns.ts";
import type { Curve, Odd, Range } from "../parts/curve_data.ts";
import { written } from "../parts/direction.ts";

export const X_AXES = ["step", "relative_step", "relative_time", "wall"] as const;
export const METRIC = "metric:"; // before the name of a metric that is the x axis
export const BANDS = ["", "std", "range", "quantile"] as const;

/** What the service is asked, besides the metrics; the names are those of its API. */
export interface Question {
  runs: string[];
  x: string;
  from?: number;
  to?: number;
  buckets: number;
  smooth: number;
  group_by: string[];
  band?: string;
  last: boolean;
  precision: "single" | "double";
}

/** The answer for one metric. */
export interface Answer {
  tag: string;
  curves: Curve[];
  points: number;
  shown: number;
  isExact: boolean;
  buckets: number;
  nan: number; // how many values are NaN
  inf: number;
  leftOut: number; // points whose step has no value of the metric on the x axis
}

export interface Names {
  label: (id: string) => string;
  colour: (name: string) => string;
}

interface Described {
  tag: string;
  points: number;
  shown: number;
  exact: boolean;
  left_out?: number;
  curves: (string | { name: string; runs: string[] })[];
}

export function readAnswers({ header, columns }: Columns, names: Names): Answer[] {
  return (header.comparisons as Described[]).map((described) => {
    const of = (name: string): Column["values"] | undefined => columns.find((column) => column.tag === described.tag && column.name === name)?.values;
    const curves = described.curves.map((one): Curve => {
      const [name, runs] = typeof one === "string" ? [one, undefined] : [one.name, one.runs.length > 0 ? one.runs : undefined];
      return { name, label: runs ? `${name} (n = ${runs.length})` : names.label(name), get colour() { return names.colour(name); }, x: [], ...(runs ? { runs } : {}) };
    });
    const edges = of("edges") ?? [];
    if (described.exact) addPoints(curves, of);
    else addBuckets(curves, of);
    let [nan, inf] = [0, 0];
    for (const curve of curves) for (const odd of curve.odd ?? []) [nan, inf] = [nan + odd.nan, inf + odd.inf];
    const { tag, points, shown, exact, left_out: leftOut = 0 } = described;
    return { tag, curves, points, shown, isExact: exact, buckets: Math.max(0, edges.length - 1), nan, inf, leftOut };
  });
}

type ColumnOf = (name: string) => Column["values"] | undefined;

function addPoints(curves: Curve[], of: ColumnOf): void {
  const [lengths, x, values] = [of("length"), of("x") as Float64Array | undefined, of("value") as Float64Array | undefined];
  let begin = 0;
  curves.forEach((curve, at) => {
    const end = begin + Number(lengths?.[at] ?? 0);
    curve.x = x?.subarray(begin, end) ?? [];
    curve.values = values?.subarray(begin, end) ?? [];
    const odd: Odd[] = [];
    for (let index = 0; index < curve.x.length; index++) {
      const value = curve.values[index] as number;
      if (!Number.isFinite(value)) odd.push({ x: curve.x[index] as number, nan: Number.isNaN(value) ? 1 : 0, inf: Number.isNaN(value) ? 0 : 1 });
    }
    if (odd.length > 0) curve.odd = odd;
    begin = end;
  });
}

// The columns of all curves stand one behind the other, with an entry for each bucket.
function addBuckets(curves: Curve[], of: ColumnOf): void {
  const edges = (of("edges") ?? new Float64Array()) as Float64Array;
  const count = Math.max(0, edges.length - 1);
  const middles = Float64Array.from({ length: count }, (_, at) => ((edges[at] as number) + (edges[at + 1] as number)) / 2);
  const part = (name: string, at: number): Float64Array | undefined => (of(name) as Float64Array | undefined)?.subarray(at * count, (at + 1) * count);
  const odd = new Map<number, Odd[]>();
  const [owners, buckets, nan, inf] = [of("nonfinite_curve"), of("nonfinite_bucket"), of("nonfinite_nan"), of("nonfinite_inf")];
  for (let at = 0; at < (owners?.length ?? 0); at++) {
    const owner = Number(owners?.[at]);
    if (!odd.has(owner)) odd.set(owner, []);
    odd.get(owner)?.push({ x: middles[Number(buckets?.[at])] ?? NaN, nan: Number(nan?.[at]), inf: Number(inf?.[at]) });
  }
  curves.forEach((curve, at) => {
    const found = odd.get(at);
    if (found) curve.odd = found;
    const full = { values: part("value", at), low: part("low", at), high: part("high", at) };
    Object.assign(curve, { x: middles }, withoutEmpty(middles, full, found ?? NONE));
  });
}

interface Parts {
  values: Float64Array | undefined;
  low: Float64Array | undefined;
  high: Float64Array | undefined;
}

const FEW = 6; // metrics that are one section: their charts stand side by side
const NONE: readonly Odd[] = [];

// A bucket in which a curve has no point is left out, so the line goes on to the next one. Where the values are no
// numbers the line has a gap.
function withoutEmpty(x: Float64Array, parts: Parts, odd: readonly Odd[]): Partial<Curve> {
  const known = parts.low ?? parts.values;
  if (!known) return {};
  const gaps = new Set(odd.map((one) => one.x));
  const places = new Uint32Array(x.length);
  let kept = 0;
  for (let at = 0; at < x.length; at++) {
    const value = known[at] as number;
    if (value === value || gaps.has(x[at] as number)) places[kept++] = at;
  }
  const begin = places[0] as number;
  const isWhole = kept === 0 || (places[kept - 1] as number) - begin === kept - 1; // a part without gaps is not copied
  const take = (column: Float64Array): Float64Array => {
    if (isWhole) return column.subarray(begin, begin + kept);
    const copy = new Float64Array(kept);
    for (let at = 0; at < kept; at++) copy[at] = column[places[at] as number] as number;
    return copy;
  };
  const given = Object.entries(parts).filter(([, column]) => column !== undefined) as [keyof Parts, Float64Array][];
  return { x: take(x), ...Object.fromEntries(given.map(([name, column]) => [name, take(column)])) };
}

/** Metrics in the order of their use: first those that runs are filtered or sorted by, then those that most runs have. */
export function orderedTags(tags: readonly string[], having: (at: number) => number, judged: string): string[] {
  const words = new Set(judged.split(/[\s<>=!~,]+/).map((word) => word.replace(/^-?(metrics\.)?/, "").replace(/\.(min|max|last)$/, "")));
  const uses = new Map(tags.map((tag, at) => [tag, (words.has(tag) ? 1e9 : 0) + having(at)]));
  return [...tags].sort((one, other) => (uses.get(other) as number) - (uses.get(one) as number)); // equal ones as they were: by name
}

/** Limits of the y axis as the address has them: `0..2`, `..2`, `0..`. */
export function readLimits(text: string): { min: number | undefined; max: number | undefined } {
  const [min, max] = text.split("..").map((part) => (part === "" || !Number.isFinite(Number(part)) ? undefined : Number(part)));
  return { min, max };
}

export function writeLimits({ min, max }: { min: number | undefined; max: number | undefined }): string {
  return min === undefined && max === undefined ? "" : `${min ?? ""}..${max ?? ""}`;
}

/** The names of metrics by what is before their first slash; first those without one. */
export function sections(tags: readonly string[], all = Infinity): Map<string, string[]> {
  const found = new Map<string, string[]>(tags.some((tag) => !tag.includes("/")) ? [["", []]] : []);
  for (const tag of tags) {
    const prefix = tag.includes("/") ? tag.slice(0, tag.indexOf("/")) : "";
    if (!found.has(prefix)) found.set(prefix, []);
    found.get(prefix)?.push(tag);
  }
  return all > FEW || tags.length === 0 ? found : new Map([["", [...found.values()].flat()]]);
}

/** The metrics whose names contain each of the words; in upper or lower case. */
export function filteredTags(tags: readonly string[], words: string): string[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  return tags.filter((tag) => wanted.every((word) => tag.toLowerCase().includes(word)));
}

/** A condition for the filter of runs: those whose metric has values of a kind (`nan`, `inf`). */
export function conditionOf(tag: string, kind: string): string {
  return `${/^[\w/.-]+$/.test(tag) ? `metrics.${tag}` : `metrics."${tag.replace(/[\\"]/g, "\\$&")}"`}.${kind}>0`;
}

/** A number in few digits, so that addresses stay readable; it is at least as exact as a pixel. */
export function rounded([from, to]: Range): Range {
  const digits = Math.min(15, Math.max(3, Math.ceil(Math.log10(Math.max(Math.abs(from), Math.abs(to)) / (to - from || 1))) + 4));
  return [Number(from.toPrecision(digits)), Number(to.toPrecision(digits))];
}

export interface Code {
  session: string; // Python that opens the service; empty for a folder
  place: string;
  filter: string;
  runs: readonly string[] | undefined; // ids in place of the filter
  question: Question;
  tag: string;
  logY: boolean;
}

/** Whether only the service can read a filter, as it has conditions on what jobs have there. */
export function isOfService(filter: string): boolean {
  return /\b(owner|star|tags|note|archived|cost|cause|instance_type|instance_count|sub_status|started|duration|queue_place)[<>=~!]/.test(filter);
}

/** Python that draws the same chart in a notebook. */
export function pythonOf({ session, place, filter, runs: ids, question, tag, logY }: Code): string {
  const runs = ids ? `[${ids.map(python).join(", ")}]` : python(filter);
  const given: [string, string | undefined][] = [
    ["x", question.x === "step" ? undefined : python(question.x)],
    ["start", question.from === undefined ? undefined : String(question.from)],
    ["end", question.to === undefined ? undefined : String(question.to)],
    ["buckets", question.buckets === 250 ? undefined : String(question.buckets)],
    ["smooth", question.smooth ? String(question.smooth) : undefined],
    ["group_by", question.group_by.length > 0 ? `[${question.group_by.map(python).join(", ")}]` : undefined],
    ["band", question.band ? python(question.band) : undefined],
  ];
  const options = [runs, python(tag), ...given.filter(([, value]) => value !== undefined).map(([name, value]) => `${name}=${value}`)];
  const [first, open] = session ? ["Session", `${session}.watch()`] : ["RunManager", `RunManager(${python(place)})`];
  return [
    `from pai_sdk import ${first}`,
    "",
    `with ${open} as manager:`,
    "    manager.wait_until_loaded()",
    `    picture = manager.compare(${options.join(", ")}).plot(${logY ? "log_y=True" : ""})`,
    "picture",
    "",
  ].join("\n");
}

// A text of JSON is one of Python too, but for signs beyond 16 bits, which Python reads as they are.
function python(text: string): string {
  return written(JSON.stringify(text));
}
