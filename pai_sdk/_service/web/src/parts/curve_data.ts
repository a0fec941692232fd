// Curves as columns of numbers: their ranges, their way over a picture, and what is nearest to a place.
//
// Nothing here needs a browser; the chart and the writer of SVG files share it.

export interface Odd {
  x: number;
  nan: number; // how many values there are NaN
  inf: number; // and how many are infinite
}

/** One curve. Where a value is NaN, the line has a gap. */
export interface Curve {
  name: string; // id of the run, or name of the group: for `onPick`, and for highlighting it in all charts
  label: string; // what people read
  colour: string;
  x: ArrayLike<number>; // ascending; curves may share it
  values?: ArrayLike<number>; // of each x: the value, the last value of a bucket, or the mean of a group
  low?: ArrayLike<number>; // of each x: the least and the largest value of a bucket, or the band of a group
  high?: ArrayLike<number>;
  odd?: readonly Odd[]; // values that are no numbers; marked at the edge of the chart
  runs?: readonly string[]; // of a group: the ids of its runs
}

export type Range = readonly [number, number];

/** What a line is drawn with: the path of a canvas, or the text of an SVG file. */
export interface Pen {
  moveTo(x: number, y: number): void;
  lineTo(x: number, y: number): void;
}

export interface View {
  x: Range;
  y: Range;
  logX: boolean;
  logY: boolean;
  left: number; // the place and size of the drawing area
  top: number;
  width: number;
  height: number;
}

const MOST_WITH_BAND = 20; // above, a bucket is drawn as a line from its least to its largest value

/** True if curves have a line with a band around it; otherwise lines go through both extremes. */
export function hasBands(curves: readonly Curve[]): boolean {
  return curves.length <= MOST_WITH_BAND || curves.some((curve) => curve.runs);
}

/** The least and the largest x of all curves; undefined without points. */
export function rangeOfX(curves: readonly Curve[], isLog = false): Range | undefined {
  let [low, high] = [Infinity, -Infinity];
  for (const { x, odd } of curves) {
    let first = 0;
    while (isLog && first < x.length && (x[first] as number) <= 0) first++;
    if (first < x.length) {
      low = Math.min(low, x[first] as number);
      high = Math.max(high, x[x.length - 1] as number);
    }
    for (const { x: at } of odd ?? []) if (!isLog || at > 0) [low, high] = [Math.min(low, at), Math.max(high, at)];
  }
  if (low > high) return undefined;
  if (!isLog && low > 0 && low < (high - low) / 50) low = 0; // the middle of the first bucket, or a first step of 1
  if (low < high) return [low, high];
  return isLog ? [low / 2, high * 2] : [low - 0.5, high + 0.5];
}

/** The range of the finite values whose x is in the view, with a margin; undefined without any. */
export function rangeOfY(curves: readonly Curve[], x: Range, isLog = false): Range | undefined {
  let [low, high] = [Infinity, -Infinity];
  for (const curve of curves) {
    const end = indexAfter(curve.x, x[1]);
    for (const column of [curve.values, curve.low, curve.high]) {
      for (let at = indexFrom(curve.x, x[0]); column && at < end; at++) {
        const value = column[at] as number;
        if ((isLog && value <= 0) || !Number.isFinite(value)) continue;
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
  }
  return low > high ? undefined : withMargin(low, high, isLog);
}

function withMargin(low: number, high: number, isLog: boolean): Range {
  if (isLog) {
    const margin = Math.max(1.02, (high / low) ** 0.04);
    return [low / margin, high * margin];
  }
  const margin = (high - low) * 0.04 || Math.abs(high) * 0.1 || 1;
  return [low - margin, high + margin];
}

/** What of the y axis is shown: limits that were set, and whether the outermost values count. */
export interface Limits {
  min: number | undefined;
  max: number | undefined;
  isTrimmed: boolean; // without the lowest and the highest 1 %
}

const TRIMMED = 0.01;
const MOST_SORTED = 100_000; // values; of more, every second, third … is taken

/** The range of y with limits, and how many of the shown values are outside of it; undefined without any value. */
export function limitedRangeOfY(curves: readonly Curve[], x: Range, isLog: boolean, { min, max, isTrimmed }: Limits): { range: Range; outside: number } | undefined {
  const whole = rangeOfY(curves, x, isLog);
  if (!whole) return undefined;
  const values: number[] = [];
  for (const { x: places, low, high, values: own } of curves) {
    const [first, end] = [indexFrom(places, x[0]), indexAfter(places, x[1])];
    for (const column of low && high ? [low, high] : [own]) {
      for (let at = first; column && at < end; at++) {
        const value = column[at] as number;
        if (Number.isFinite(value) && !(isLog && value <= 0)) values.push(value);
      }
    }
  }
  let range = whole;
  if (isTrimmed) {
    const every = Math.ceil(values.length / MOST_SORTED);
    const some = Float64Array.from(values.filter((_, at) => at % every === 0)).sort();
    const last = some.length - 1;
    const out = Math.min(Math.ceil(TRIMMED * last), last >> 1);
    range = withMargin(some[out] as number, some[last - out] as number, isLog);
  }
  const isUsable = (value: number | undefined): value is number => value !== undefined && !(isLog && value <= 0);
  let [low, high] = [isUsable(min) ? min : range[0], isUsable(max) ? max : range[1]];
  if (low >= high) [low, high] = isUsable(min) ? [low, low + (Math.abs(low) || 1)] : [high - (Math.abs(high) || 1), high];
  if (isLog && low <= 0) low = high / 10;
  return { range: [low, high], outside: values.filter((value) => value < low || value > high).length };
}

/** How many values of the view cannot be drawn on a logarithmic axis, as they are not above 0. */
export function countNotAboveZero(curves: readonly Curve[], x: Range): number {
  let found = 0;
  for (const curve of curves) {
    const column = curve.low ?? curve.values;
    const end = indexAfter(curve.x, x[1]);
    for (let at = indexFrom(curve.x, x[0]); column && at < end; at++) if ((column[at] as number) <= 0) found++;
  }
  return found;
}

/** The first index whose x is not below a place. */
function indexFrom(x: ArrayLike<number>, place: number): number {
  let [low, high] = [0, x.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((x[middle] as number) < place) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The first index whose x is above a place. */
function indexAfter(x: ArrayLike<number>, place: number): number {
  let at = indexFrom(x, place);
  while (at < x.length && x[at] === place) at++;
  return at;
}

/** The index of the nearest x; -1 without points. */
export function nearestIndex(x: ArrayLike<number>, place: number): number {
  const at = indexFrom(x, place);
  if (at === 0) return x.length > 0 ? 0 : -1;
  if (at === x.length) return at - 1;
  return (x[at] as number) - place < place - (x[at - 1] as number) ? at : at - 1;
}

/** The x of all curves that is nearest to a place, so that the cursor stands at points; undefined without points. */
export function nearestX(curves: readonly Curve[], place: number): number | undefined {
  let found: number | undefined;
  let before: ArrayLike<number> | undefined;
  for (const { x } of curves) {
    if (x === before) continue; // buckets share their x
    before = x;
    const at = nearestIndex(x, place);
    if (at >= 0 && (found === undefined || Math.abs((x[at] as number) - place) < Math.abs(found - place))) found = x[at];
  }
  return found;
}

interface Near {
  curve: Curve;
  point: Point;
}

/** The points of all curves near an x, the highest first; of more than `most`, those nearest to a y on the picture. */
export function pointsNear(curves: readonly Curve[], view: View, place: number, top: number, most: number): { rows: Near[]; count: number } {
  const { ofX, ofY } = placer(view);
  const found: (Near & { top: number })[] = [];
  for (const curve of curves) {
    const point = pointAt(curve, place);
    if (!point || Math.abs(ofX(point.x) - ofX(place)) > NEAR_X) continue;
    found.push({ curve, point, top: ofY(heightOf(point)) });
  }
  const count = found.length;
  const away = ({ top: one }: { top: number }): number => (one === one ? Math.abs(one - top) : Infinity);
  if (count > most) found.sort((one, other) => away(one) - away(other)).length = most;
  const height = ({ point }: Near): number => (Number.isNaN(heightOf(point)) ? -Infinity : heightOf(point));
  return { rows: found.sort((one, other) => height(other) - height(one) || 0), count };
}

const NEAR_X = 24; // pixels; a curve without a point so near has no row

/** Where a point is on the y axis: its value, or the largest of its bucket. */
export function heightOf({ value, high }: Point): number {
  return Number.isNaN(value) ? high : value;
}

/** The places of values that are no numbers, as pixels from the left; those without space between them are one, without a colour. */
export function oddRanges(curves: readonly Curve[], kind: "nan" | "inf", { ofX, within, space }: { ofX: (x: number) => number; within: Range; space: number }): { from: number; to: number; colour: string }[] {
  const places = new Map<number, string>(); // the colour of the curve; of several curves none
  for (const { odd, colour } of curves) {
    for (const one of odd ?? []) {
      if (!one[kind] || !(one.x >= within[0] && one.x <= within[1])) continue;
      const left = Math.round(ofX(one.x));
      const known = places.get(left);
      places.set(left, known === undefined || known === colour ? colour : "");
    }
  }
  const ranges: { from: number; to: number; colour: string }[] = [];
  for (const left of [...places.keys()].sort((one, other) => one - other)) {
    const [last, colour] = [ranges[ranges.length - 1], places.get(left) as string];
    if (last && left - last.to <= space) [last.to, last.colour] = [left, ""]; // in a colour of its own, as it is no curve
    else ranges.push({ from: left, to: left, colour });
  }
  return ranges;
}

export const ODD_SPACE = 9; // pixels between two marks of values that are no numbers; with less they are one

/** The corners of a mark for values that are no numbers: a triangle on a bar, which is as wide as their places. */
export function oddOutline(from: number, to: number, edge: number, up: number): [number, number][] {
  const [size, base] = [3, edge + 2 * up];
  return [[from - size, edge], [from - size, base], [from, base + 4 * up], [from + size, base], [to + size, base], [to + size, edge]];
}

/** Where a value is on the picture. */
export function placer(view: View): { ofX: (x: number) => number; ofY: (y: number) => number } {
  const along = ([from, to]: Range, isLog: boolean, begin: number, size: number) => {
    const [low, high] = isLog ? [Math.log(from), Math.log(to)] : [from, to];
    const scale = size / (high - low);
    return isLog ? (value: number) => begin + (Math.log(value) - low) * scale : (value: number) => begin + (value - low) * scale;
  };
  return {
    ofX: along(view.x, view.logX, view.left, view.width),
    ofY: along(view.y, view.logY, view.top + view.height, -view.height),
  };
}

/** Draws the line of a curve, with gaps where there is no value. Points without neighbours become short lines. */
export function drawLine(pen: Pen, curve: Curve, view: View, withBand: boolean): void {
  const { ofX, ofY } = placer(view);
  const first = Math.max(0, indexFrom(curve.x, view.x[0]) - 1);
  const end = Math.min(curve.x.length, indexAfter(curve.x, view.x[1]) + 1);
  const both = curve.low && curve.high && !(withBand && curve.values) ? [curve.low, curve.high] : undefined;
  const single = curve.values ?? curve.low;
  let before = NaN; // the last value that was drawn; NaN behind a gap
  const to = (x: number, value: number): void => {
    if (!Number.isFinite(value) || (view.logY && value <= 0) || (view.logX && x <= 0)) {
      before = NaN;
      return;
    }
    const [left, top] = [ofX(x), ofY(value)];
    if (Number.isNaN(before)) {
      pen.moveTo(left, top);
      pen.lineTo(left + 0.01, top); // a line of no length is not drawn, and this could be the only point
    } else pen.lineTo(left, top);
    before = value;
  };
  for (let at = first; at < end; at++) {
    const x = curve.x[at] as number;
    if (!both) {
      to(x, (single as ArrayLike<number>)[at] as number);
      continue;
    }
    let [near, far] = [(both[0] as ArrayLike<number>)[at] as number, (both[1] as ArrayLike<number>)[at] as number];
    if (view.logY && near <= 0) near = far;
    if (Math.abs(before - far) < Math.abs(before - near)) [near, far] = [far, near];
    to(x, near);
    if (near !== far) to(x, far);
  }
}

/** Draws the outlines of the band of a curve, to be filled. */
export function drawBand(pen: Pen, curve: Curve, view: View): void {
  const { low, high, x } = curve;
  if (!low || !high) return;
  const { ofX, ofY } = placer(view);
  const first = Math.max(0, indexFrom(x, view.x[0]) - 1);
  const end = Math.min(x.length, indexAfter(x, view.x[1]) + 1);
  const isDrawn = (at: number): boolean =>
    Number.isFinite(low[at]) && Number.isFinite(high[at]) && (!view.logY || (high[at] as number) > 0) && (!view.logX || (x[at] as number) > 0);
  const bottom = (at: number): number => ofY(view.logY && (low[at] as number) <= 0 ? view.y[0] : (low[at] as number));
  for (let begin = first; begin < end; ) {
    if (!isDrawn(begin)) {
      begin++;
      continue;
    }
    let after = begin;
    while (after < end && isDrawn(after)) after++;
    pen.moveTo(ofX(x[begin] as number), ofY(high[begin] as number));
    for (let at = begin + 1; at < after; at++) pen.lineTo(ofX(x[at] as number), ofY(high[at] as number));
    for (let at = after - 1; at >= begin; at--) pen.lineTo(ofX(x[at] as number), bottom(at));
    begin = after;
  }
}

/** A point of a curve, or a bucket of its points. */
export interface Point {
  x: number;
  value: number;
  low: number;
  high: number;
}

/** The value of a curve near a place, and where it is; undefined before its first and behind its last point. */
export function pointAt(curve: Curve, place: number): Point | undefined {
  const { x } = curve;
  const at = nearestIndex(x, place);
  if (at < 0) return undefined;
  const [first, last] = [x[0] as number, x[x.length - 1] as number];
  const reach = x.length > 1 ? (last - first) / (x.length - 1) : Infinity; // a mean distance of points
  if (place < first - reach || place > last + reach) return undefined;
  const low = (curve.low ?? curve.values)?.[at] ?? NaN;
  const high = (curve.high ?? curve.values)?.[at] ?? NaN;
  const value = curve.values?.[at] ?? NaN;
  return { x: curve.x[at] as number, value, low, high };
}

/** The curve that is nearest to a place of the picture, if one is within a distance. */
export function nearestCurve(curves: readonly Curve[], view: View, left: number, top: number, within: number): Curve | undefined {
  const { ofX, ofY } = placer(view);
  let [found, least] = [undefined as Curve | undefined, within];
  for (const curve of curves) {
    const away = distanceTo(curve, ofX, ofY, left, top);
    if (away < least) [found, least] = [curve, away];
  }
  return found;
}

// From a place of the picture to the line between the points beside it, or to its band.
function distanceTo(curve: Curve, ofX: (x: number) => number, ofY: (y: number) => number, left: number, top: number): number {
  const { x } = curve;
  let [begin, end] = [0, x.length];
  while (begin < end) {
    const middle = (begin + end) >> 1;
    if (ofX(x[middle] as number) < left) begin = middle + 1;
    else end = middle;
  }
  const lower = (at: number): number => ofY((curve.low ?? curve.values)?.[at] ?? NaN);
  const upper = (at: number): number => ofY((curve.high ?? curve.values)?.[at] ?? NaN);
  const outside = (bottom: number, above: number): number => Math.max(0, top - bottom, above - top);
  if (begin === 0 || begin === x.length) {
    const at = begin === 0 ? 0 : begin - 1;
    return Math.hypot(ofX(x[at] ?? NaN) - left, outside(lower(at), upper(at)));
  }
  const part = (left - ofX(x[begin - 1] as number)) / (ofX(x[begin] as number) - ofX(x[begin - 1] as number));
  const between = (of: (at: number) => number): number => of(begin - 1) + (of(begin) - of(begin - 1)) * part;
  return outside(between(lower), between(upper));
}

/** The least, the largest and the last value of a curve between two places; NaN where there is none but NaN. */
export function extremes(curve: Curve, x: Range): { min: number; max: number; last: number | undefined } {
  let [min, max, last] = [Infinity, -Infinity, undefined as number | undefined];
  const end = indexAfter(curve.x, x[1]);
  const first = indexFrom(curve.x, x[0]);
  const isGroup = Boolean(curve.runs);
  const low = (isGroup ? curve.values : curve.low) ?? curve.values;
  const high = (isGroup ? curve.values : curve.high) ?? curve.values;
  for (let at = first; at < end; at++) {
    if (Number.isFinite(low?.[at])) min = Math.min(min, low?.[at] as number);
    if (Number.isFinite(high?.[at])) max = Math.max(max, high?.[at] as number);
  }
  if (end > first) last = curve.values?.[end - 1];
  return { min: min === Infinity ? NaN : min, max: max === -Infinity ? NaN : max, last };
}
