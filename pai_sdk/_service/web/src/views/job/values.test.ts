import assert from "node:assert/strict";
import test from "node:test";
import { numberOf } from "./values.ts";

test("numbers that JSON does not have", () => {
  assert.deepEqual([0.5, "nan", "inf", "-inf", null, undefined].map(numberOf), [0.5, Number.NaN, Infinity, -Infinity, null, null]);
});
