// Histograms over steps as a picture: a column for each histogram, a row for each range of values.
import { numberOf } from "../job/values.ts";
import type { Item } from "./media_data.ts";

export interface Range {
  least: number;
  largest: number;
}

/** The least and the largest value of histograms; undefined where there is none. */
export function rangeOf(items: Iterable<Item>): Range | undefined {
  let [least, largest] = [Infinity, -Infinity];
  for (const item of items) {
    for (const [left, right, count] of binsOf(item)) {
      if (count <= 0) continue;
      if (Number.isFinite(left)) least = Math.min(least, left);
      if (Number.isFinite(right)) largest = Math.max(largest, right);
    }
  }
  if (least > largest) return undefined;
  return least < largest ? { least, largest } : { least: least - 0.5, largest: largest + 0.5 };
}

/** The part of the values in each of `rows` equal ranges, the lowest first; a bin over several ranges is divided. */
export function column(item: Item, { least, largest }: Range, rows: number): Float64Array {
  const parts = new Float64Array(rows);
  const height = (largest - least) / rows;
  const bins = binsOf(item);
  const total = bins.reduce((sum, [, , count]) => sum + count, 0);
  for (const [left, right, count] of bins) {
    if (count <= 0 || !Number.isFinite(left) || !Number.isFinite(right)) continue;
    const first = Math.max(0, Math.min(rows - 1, Math.floor((left - least) / height)));
    const last = Math.max(first, Math.min(rows - 1, Math.ceil((right - least) / height) - 1));
    for (let row = first; row <= last; row++) {
      const shared = Math.min(right, least + (row + 1) * height) - Math.max(left, least + row * height);
      const part = first === last || right <= left ? 1 : Math.max(0, shared) / (right - left);
      parts[row] = (parts[row] as number) + (count / total) * part;
    }
  }
  return parts;
}

/** The bin that a value is in. */
export function binAt(item: Item, value: number): [number, number, number] | undefined {
  return binsOf(item).find(([left, right]) => left <= value && value <= right);
}

/** Left, right and count of each bin as numbers. */
export function binsOf(item: Item): [number, number, number][] {
  return (item.bins ?? []).map(([left, right, count]) => [numberOf(left) ?? NaN, numberOf(right) ?? NaN, count]);
}
