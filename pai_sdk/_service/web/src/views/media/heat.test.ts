import assert from "node:assert/strict";
import test from "node:test";
import { binAt, column, rangeOf } from "./heat.ts";
import type { Item } from "./media_data.ts";

const of = (...bins: [number, number, number][]): Item => ({ index: 0, step: 0, wall: 0, bins });

test("the range leaves out empty bins and infinities", () => {
  assert.deepEqual(rangeOf([of([-9, 0, 0], [0, 1, 5]), of([1, 4, 2], [4, Infinity, 1])]), { least: 0, largest: 4 });
  assert.deepEqual(rangeOf([of([3, 3, 5])]), { least: 2.5, largest: 3.5 });
  assert.equal(rangeOf([of()]), undefined);
});

test("a bin over several rows is divided, and the parts sum to 1", () => {
  const parts = column(of([0, 4, 8], [2, 3, 8]), { least: 0, largest: 4 }, 4);
  assert.deepEqual([...parts], [0.125, 0.125, 0.625, 0.125]);
});

test("a bin of one value is in one row, the largest value in the last", () => {
  assert.deepEqual([...column(of([4, 4, 3], [0, 0, 1]), { least: 0, largest: 4 }, 2)], [0.25, 0.75]);
});

test("a value leads to its bin", () => {
  assert.deepEqual(binAt(of([0, 1, 5], [1, 2, 7]), 1.5), [1, 2, 7]);
  assert.equal(binAt(of([0, 1, 5]), 3), undefined);
});
