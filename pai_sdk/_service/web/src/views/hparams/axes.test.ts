import assert from "node:assert/strict";
import test from "node:test";
import { axisOf, rankCorrelation, ranks, typed, valuesText, withRange, written } from "./axes.ts";

test("an axis over decades is logarithmic", () => {
  const axis = axisOf("lr", { a: 0.001, b: 0.1, c: 10, d: null });
  assert.equal(axis.isLog, true);
  assert.deepEqual(["a", "b", "c", "d", "e"].map(axis.place), [0, 0.5, 1, undefined, undefined]);
  assert.ok(Math.abs(axis.valueAt(0.5) - 0.1) < 1e-12);
});

test("an axis has round numbers where they are, and whole ones for whole values", () => {
  const accuracy = axisOf("accuracy", { a: 0.622, b: 1 });
  assert.deepEqual(accuracy.ticks.map(({ text }) => text), ["0.7", "0.8", "0.9", "1"]);
  assert.ok(Math.abs((accuracy.ticks[0]?.at ?? 0) - (0.7 - 0.622) / 0.378) < 1e-9);
  assert.deepEqual(axisOf("trial", { a: 0, b: 7 }).ticks.map(({ text }) => text), ["0", "2", "4", "6"]);
  assert.deepEqual(axisOf("trial", { a: 0, b: 2 }).ticks.map(({ text }) => text), ["0", "1", "2"]);
  assert.deepEqual(axisOf("lr", { a: 0.001, b: 1 }).ticks.map(({ at }) => Math.round(at * 100)), [0, 33, 67, 100]);
});

test("the values of an axis are those of the runs, not those of its ticks", () => {
  const texts = [{ a: 0.037, b: 0.676 }, { a: 600, b: 600 }, { a: 0.001, b: 0.5 }, { a: "sgd", b: "adam" }].map((values) => valuesText(axisOf("x", values)));
  assert.deepEqual(texts, ["0.037 … 0.676", "600", "0.001 … 0.5", "adam, sgd"]);
});

test("one value stands in the middle, NaN nowhere", () => {
  const axis = axisOf("acc", { a: 0.5, b: 0.5, c: "nan" });
  assert.deepEqual([axis.isNumeric, axis.place("a"), axis.place("c")], [true, 0.5, undefined]);
});

test("texts, booleans and null are categories; a missing value is none", () => {
  const axis = axisOf("opt", { a: "sgd", b: "adam", c: null });
  assert.deepEqual(axis.ticks.map(({ text }) => text), ["adam", "null", "sgd"]);
  assert.deepEqual(["a", "c", "d"].map(axis.place), [1, 0.5, undefined]);
});

test("a range replaces the range of its key only", () => {
  const filter = 'hparams.lr>=0.1 hparams.lr<=1 name~"a b" hparams.lr2>=3';
  assert.equal(withRange(filter, "hparams.lr", 0.5, undefined), 'name~"a b" hparams.lr2>=3 hparams.lr>=0.5');
  assert.equal(withRange("", "hparams.lr", undefined, 2), "hparams.lr<=2");
});

test("ranks go from 0 to 1", () => {
  assert.deepEqual([...ranks({ a: 3, b: 1, c: 2, d: "nan" })], [["b", 0], ["c", 0.5], ["a", 1]]);
});

test("the rank correlation shares ranks of equal values", () => {
  assert.equal(rankCorrelation([[1, 1], [2, 10], [3, 1000]]), 1);
  assert.equal(rankCorrelation([[1, 3], [2, 2], [3, 1]]), -1);
  assert.ok(Math.abs((rankCorrelation([[1, 1], [1, 2], [2, 3], [3, 4]]) ?? 0) - 0.9486833) < 1e-6);
  assert.deepEqual([rankCorrelation([[1, 1], [2, 2]]), rankCorrelation([[1, 1], [1, 2], [1, 3]])], [undefined, undefined]);
});

test("a missing value is written in another way than null", () => {
  assert.deepEqual([undefined, null, "a", 0.5, [1]].map(written), ["–", "null", "a", "0.5", "[1]"]);
});

test("numbers that come as text are numbers", () => {
  assert.deepEqual(typed("number", { a: "0.1", b: null, c: 2 }), { a: 0.1, b: null, c: 2 });
  assert.deepEqual(typed("text", { a: "0.1" }), { a: "0.1" });
});
