import assert from "node:assert/strict";
import test from "node:test";
import { boxHeight, isShortened, mostTop, readRange, scrolledTo, topOf, writeRange } from "./virtual_lines.ts";

const few = { total: 1000, height: 600, line: 18 };
const many = { total: 5_000_000, height: 600, line: 18 };

test("the box is never higher than browsers bear", () => {
  assert.equal(boxHeight(few), 18_000);
  assert.equal(boxHeight(many), 8_000_000);
  assert.deepEqual([isShortened(few), isShortened(many)], [false, true]);
});

test("the scroll bar reaches the first and the last line", () => {
  for (const sizes of [few, many]) {
    assert.equal(topOf(0, sizes), 0);
    assert.equal(topOf(boxHeight(sizes) - sizes.height, sizes), mostTop(sizes));
    assert.ok(Math.abs(mostTop(sizes) + sizes.height / sizes.line - sizes.total) < 1e-6);
  }
});

test("a line is where the scroll bar finds it", () => {
  for (const sizes of [few, many]) {
    for (const top of [0, 1, 17.5, 900]) assert.ok(Math.abs(topOf(scrolledTo(top, sizes), sizes) - top) < 1e-6);
  }
  assert.equal(Math.round(scrolledTo(10, few)), 180);
});

test("a log that fits does not scroll", () => {
  const sizes = { total: 5, height: 600, line: 18 };
  assert.deepEqual([mostTop(sizes), topOf(50, sizes), scrolledTo(0, sizes)], [0, 0, 0]);
});

test("ranges of lines in the address are counted from 1", () => {
  assert.deepEqual(readRange("120"), [119, 119]);
  assert.deepEqual(readRange("140-120"), [119, 139]);
  for (const wrong of ["", "0", "x", "1-", "-3", "1-2-3", "1e3"]) assert.equal(readRange(wrong), undefined);
  assert.equal(writeRange([119, 119]), "120");
  assert.equal(writeRange([119, 139]), "120-140");
});
