import assert from "node:assert/strict";
import test from "node:test";
import { segmentsOf } from "./segments.ts";

function written(total: number, first: number, last: number, pinned: number): string {
  return segmentsOf(total, first, last, pinned).map(({ from, to, isGap }) => (isGap ? `(${from}-${to})` : `${from}-${to}`)).join(" ");
}

test("rows on the screen, with gaps around them", () => {
  assert.equal(written(1000, 20, 60, -1), "(0-20) 20-60 (60-1000)");
  assert.equal(written(5, 0, 60, -1), "0-5");
  assert.equal(written(0, 0, 60, -1), "");
  assert.equal(written(5, 20, 60, -1), "(0-5)");
});

test("the row with the focus stays", () => {
  assert.equal(written(1000, 20, 60, 3), "(0-3) 3-4 (4-20) 20-60 (60-1000)");
  assert.equal(written(1000, 20, 60, 30), "(0-20) 20-60 (60-1000)");
  assert.equal(written(1000, 20, 60, 60), "(0-20) 20-60 60-61 (61-1000)");
  assert.equal(written(1000, 0, 60, 999), "0-60 (60-999) 999-1000");
});
