import assert from "node:assert/strict";
import test from "node:test";
import { age, bytes, count, duration, number, zone } from "./format.ts";

test("numbers are short", () => {
  const shown = [0, 0.1 + 0.2, -2.5, 123456, 1234567, 0.00001234, Number.NaN, Number.NEGATIVE_INFINITY, null].map((value) => number(value));
  assert.deepEqual(shown, ["0", "0.3", "−2.5", "123460", "1.235e6", "1.234e-5", "NaN", "−∞", ""]);
});

test("times have one or two units", () => {
  assert.deepEqual([42, 185, 7800, 90000].map(duration), ["42 s", "3 min 5 s", "2 h 10 min", "1 d 1 h"]);
  assert.deepEqual([10, 150, 7300, 999999].map((passed) => age(1e9, 1e9 + passed)), ["10 s ago", "3 min ago", "2 h ago", "12 d ago"]);
});

test("sizes have a unit", () => {
  assert.deepEqual([0, 999, 1000, 3_200_000, 12e9].map((size) => bytes(size)), ["0 B", "999 B", "1.0 kB", "3.2 MB", "12 GB"]);
});

test("whole numbers have separators", () => {
  assert.deepEqual([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
});

test("a zone is written as its hours before or behind UTC", () => {
  const minutes = -new Date(1.7e12).getTimezoneOffset();
  assert.match(zone(1.7e9), minutes === 0 ? /^UTC$/ : /^UTC[+−]\d{1,2}(:\d\d)?$/);
});
