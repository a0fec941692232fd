// Axes for values of hyperparameters and metrics: where on a line from 0 to 1 a value stands.
import { number } from "../../format.ts";
import { linearTicks, logTicks } from "../../parts/ticks.ts";

export interface Axis {
  name: string;
  isMetric: boolean;
  isNumeric: boolean;
  isLog: boolean;
  ticks: { at: number; text: string }[];
  place: (run: string) => number | undefined; // 0 to 1; undefined: the run has no such value
  value: (run: string) => unknown;
  valueAt: (place: number) => number; // of a numeric axis
}

const DECADES = 100; // the largest is so many times the smallest: then the axis is logarithmic
const MOST_CATEGORIES = 20;
const MOST_TICKS = 5;

export function axisOf(name: string, values: Readonly<Record<string, unknown>>, isMetric = false): Axis {
  const given = Object.values(values);
  const numbers = given.filter((value): value is number => typeof value === "number" && Number.isFinite(value));
  const isNumeric = numbers.length > 0 && given.every((value) => value === null || typeof value === "number" || isOdd(value));
  return isNumeric ? numericAxis(name, values, numbers, isMetric) : categoricalAxis(name, values, isMetric);
}

function numericAxis(name: string, values: Readonly<Record<string, unknown>>, numbers: number[], isMetric: boolean): Axis {
  let [least, largest] = [Infinity, -Infinity];
  for (const value of numbers) {
    least = Math.min(least, value);
    largest = Math.max(largest, value);
  }
  const isLog = least > 0 && largest / least >= DECADES;
  const scale = isLog ? Math.log10 : (value: number): number => value;
  const [from, to] = [scale(least), scale(largest)];
  const width = to - from || 1;
  const valueAt = (place: number): number => (isLog ? 10 ** (from + place * (to - from)) : from + place * (to - from));
  const placeOf = (value: unknown): number | undefined =>
    typeof value === "number" && Number.isFinite(value) ? (to === from ? 0.5 : (scale(value) - from) / width) : undefined;
  const range = [least, largest] as const;
  const ticks = isLog ? logTicks(range, MOST_TICKS) : linearTicks(range, MOST_TICKS);
  const whole = numbers.every(Number.isInteger) ? ticks.filter(([value]) => Number.isInteger(value)) : ticks;
  return {
    name,
    isMetric,
    isNumeric: true,
    isLog,
    ticks: to === from ? [{ at: 0.5, text: number(least, 3) }] : whole.map(([value, text]) => ({ at: (scale(value) - from) / width, text })),
    place: (run) => placeOf(values[run]),
    value: (run) => values[run],
    valueAt,
  };
}

function categoricalAxis(name: string, values: Readonly<Record<string, unknown>>, isMetric: boolean): Axis {
  const all = [...new Set(Object.values(values).map(written))].sort();
  const shown = all.slice(0, MOST_CATEGORIES);
  const at = new Map(shown.map((text, index) => [text, shown.length === 1 ? 0.5 : index / (shown.length - 1)]));
  return {
    name,
    isMetric,
    isNumeric: false,
    isLog: false,
    ticks: shown.map((text) => ({ at: at.get(text) as number, text })),
    place: (run) => (run in values ? at.get(written(values[run])) : undefined),
    value: (run) => values[run],
    valueAt: () => Number.NaN,
  };
}

/** What stands on an axis, as text: from the least to the largest number, or the categories. */
export function valuesText({ isNumeric, ticks, valueAt }: Axis): string {
  return isNumeric ? [...new Set([0, 1].map((end) => number(valueAt(end), 3)))].join(" … ") : ticks.map(({ text }) => text).join(", ");
}

/** A value as text; null is a value, and a missing one is not. */
export function written(value: unknown): string {
  if (value === undefined) return "–";
  if (typeof value === "number") return number(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}

// JSON has no NaN and no infinities: they come as text.
function isOdd(value: unknown): boolean {
  return value === "nan" || value === "inf" || value === "-inf";
}

/** A filter with the range of one key; it replaces the range that the filter had for this key. */
export function withRange(filter: string, key: string, from: number | undefined, to: number | undefined): string {
  const others = (filter.match(/(?:"(?:[^"\\]|\\.)*"|[^\s"])+/g) ?? []).filter((word) => !word.startsWith(`${key}>=`) && !word.startsWith(`${key}<=`));
  if (from !== undefined) others.push(`${key}>=${Number(from.toPrecision(6))}`);
  if (to !== undefined) others.push(`${key}<=${Number(to.toPrecision(6))}`);
  return others.join(" ");
}

/** A colour between blue, green and yellow, by a part from 0 to 1; colour-blind eyes tell its steps by lightness. */
export function scaleColour(part: number): string {
  const stops = [[68, 60, 140], [49, 104, 142], [33, 145, 140], [80, 190, 105], [225, 205, 40]] as const;
  const place = Math.max(0, Math.min(1, part)) * (stops.length - 1);
  const at = Math.min(stops.length - 2, Math.floor(place));
  const [low, high] = [stops[at] as readonly number[], stops[at + 1] as readonly number[]];
  return `rgb(${low.map((value, index) => Math.round(value + ((high[index] as number) - value) * (place - at))).join(" ")})`;
}

/** For each run its rank among the values, from 0 to 1. */
export function ranks(values: Readonly<Record<string, unknown>>): Map<string, number> {
  const known = Object.entries(values).filter((entry): entry is [string, number] => typeof entry[1] === "number");
  known.sort((one, other) => one[1] - other[1]);
  return new Map(known.map(([run], at) => [run, known.length < 2 ? 1 : at / (known.length - 1)]));
}

/** Spearman's rank correlation of the pairs of numbers; undefined below three pairs, or where one side is constant. */
export function rankCorrelation(pairs: readonly (readonly [number, number])[]): number | undefined {
  const [one, other] = [meanRanks(pairs.map(([x]) => x)), meanRanks(pairs.map(([, y]) => y))];
  const middle = (pairs.length - 1) / 2;
  let [both, first, second] = [0, 0, 0];
  one.forEach((rank, at) => {
    const [x, y] = [rank - middle, (other[at] as number) - middle];
    [both, first, second] = [both + x * y, first + x * x, second + y * y];
  });
  return pairs.length < 3 || first === 0 || second === 0 ? undefined : both / Math.sqrt(first * second);
}

// Equal values share the mean of their ranks.
function meanRanks(values: readonly number[]): number[] {
  const order = values.map((_, at) => at).sort((one, other) => (values[one] as number) - (values[other] as number));
  const found: number[] = [];
  for (let from = 0, to = 0; from < order.length; from = to) {
    while (to < order.length && values[order[to] as number] === values[order[from] as number]) to++;
    for (const at of order.slice(from, to)) found[at] = (from + to - 1) / 2;
  }
  return found;
}

/** Values as their kind says: a service keeps the hyperparameters of jobs as text, numbers too. */
export function typed(kind: string, values: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  if (kind !== "number") return values;
  const asNumber = (value: unknown): unknown => (typeof value === "string" && !Number.isNaN(Number(value)) ? Number(value) : value);
  return Object.fromEntries(Object.entries(values).map(([run, value]) => [run, asNumber(value)]));
}
