import assert from "node:assert/strict";
import test from "node:test";
import { csvOf, metricRow, rowOf, valueRows } from "./table.ts";

test("the best of a loss is the lowest, of an accuracy the highest, of others none", () => {
  assert.deepEqual(metricRow("train/loss", "min", [0.5, 0.1, null], String).best, [false, true, false]);
  assert.deepEqual(metricRow("acc", "last", [0.5, 0.9, Number.NaN], String).best, [false, true, false]);
  assert.deepEqual(metricRow("loss", "max", [0.5, 0.1], String).best, [false, false]);
  assert.deepEqual(metricRow("lr", "last", [0.5, 0.1], String).best, [false, false]);
  assert.deepEqual(metricRow("loss", "last", [0.5, 0.5], String).best, [false, false]);
});

test("values that differ come first, and a missing one differs", () => {
  const rows = valueRows("hparams", [{ a: 1, b: "x" }, { a: 1, c: null }]);
  assert.deepEqual(rows.map(({ name, texts, isSame }) => [name, texts, isSame]), [
    ["b", ["x", ""], false],
    ["c", ["", "null"], false],
    ["a", ["1", "1"], true],
  ]);
});

test("CSV runs no formula", () => {
  const rows = [rowOf("", "=1+1", ['a "b"', "-0.5"]), rowOf("", "x", ["@y", "a,b\nc"])];
  assert.equal(csvOf(["", "one"], [rowOf("", "loss", ["−0.5"])]), ",one\r\nloss,-0.5\r\n");
  assert.equal(csvOf(["", "one", "two"], rows), ',one,two\r\n\'=1+1,"a ""b""",-0.5\r\nx,\'@y,"a,b\nc"\r\n');
});
