import assert from "node:assert/strict";
import test from "node:test";
import { formatOf } from "./numbers.ts";

const written = (...values: number[]): string[] => values.map(formatOf(values));

test("decimals are the same in a column", () => {
  assert.deepEqual(written(0.1234567, 2.3, 10.25), ["0.1235", "2.3000", "10.2500"]);
  assert.deepEqual(written(0.5, 0.25), ["0.50", "0.25"]);
  assert.deepEqual(written(0.693147, 0.5), ["0.69315", "0.50000"]);
  assert.deepEqual(written(-1.5, 2), ["−1.5", "2.0"]);
});

test("whole numbers stay whole", () => {
  assert.deepEqual(written(3, 128, 7_000_000), ["3", "128", "7000000"]);
});

test("rates of very different sizes have exponents, and as many digits", () => {
  assert.deepEqual(written(1e-7, 3.5e-3, 0.5), ["1.000e-7", "3.500e-3", "5.000e-1"]);
  assert.deepEqual(written(1e-5, 1e-3, 0.1), ["0.00001", "0.00100", "0.10000"]);
  assert.deepEqual(written(123_456_789.5, 1), ["1.235e8", "1.000e0"]);
});

test("one tiny number does not change how the others are written", () => {
  const values = [1e-17, ...Array.from({ length: 20 }, (_, at) => 1 + at / 7)];
  assert.deepEqual(values.map(formatOf(values)).slice(0, 2), ["1e-17", "1.00000"]);
});

test("what is no number has its word", () => {
  assert.deepEqual([NaN, Infinity, -Infinity, 0].map(formatOf([0.25, NaN])), ["NaN", "∞", "−∞", "0.00"]);
});
