import assert from "node:assert/strict";
import test from "node:test";
import type { RunList } from "../../runs.ts";
import { columnOf, factOf, keysOf, quoted, usualKeys, widthOf } from "./columns.ts";

const list = {
  tags: ["eval/acc", "loss"],
  runs: [
    { id: "a", v: "1", hparams: { lr: 0.1, seed: 1, note: null }, labels: { "pai-sdk-submission": "5f", team: "nlp" }, last: [null, null], min: [null, 0.5], nonfinite: { last: { nan: [1] } } },
    { id: "b", v: "1", hparams: { lr: 0.2, seed: 1 }, last: [0.9, 0.25], min: [0.1, 0.25] },
  ],
} as unknown as RunList;

test("usual columns are what differs, and metrics", () => {
  assert.deepEqual(usualKeys(list), ["labels.team", "metrics.loss", "metrics.eval/acc", "hparams.lr", "hparams.note"]);
  assert.deepEqual(keysOf(list), ["labels.pai-sdk-submission", "labels.team", "hparams.lr", "hparams.note", "hparams.seed", "metrics.eval/acc", "metrics.loss"]);
});

test("a cell tells NaN, null and what is missing apart", () => {
  const texts = (key: string): string[] => list.runs.map(columnOf(key, list).text);
  assert.deepEqual(texts("metrics.loss"), ["NaN", "0.25"]);
  assert.deepEqual(texts("metrics.loss.min"), ["0.5", "0.25"]);
  assert.deepEqual(texts("hparams.note"), ["null", ""]);
  assert.deepEqual(texts("labels.team"), ["nlp", ""]);
});

test("a tag may end like a fact", () => {
  assert.deepEqual(factOf("lr.max", ["lr.max"]), ["lr.max", "last"]);
  assert.deepEqual(factOf("lr.max", ["lr"]), ["lr", "max"]);
});

test("odd names are quoted for filters", () => {
  assert.equal(quoted('metrics.my "loss"'), 'metrics."my \\"loss\\""');
  assert.equal(quoted("hparams.lr"), "hparams.lr");
});

test("a column of numbers is one in all runs", () => {
  assert.equal(columnOf("hparams.lr", list).isNumber, true);
  const mixed = { ...list, runs: [...list.runs, { id: "c", v: "1", hparams: { lr: "auto" } }] } as unknown as RunList;
  assert.equal(columnOf("hparams.lr", mixed).isNumber, false);
});

test("the width follows the longest text, within limits", () => {
  assert.equal(widthOf("lr", ["0.1"]), 80);
  assert.ok(widthOf("lr", ["0.123456789"]) > 80);
  assert.equal(widthOf("note", ["x".repeat(1000)]), 288);
});

test("metrics by which runs are judged come before others", () => {
  const both = { tags: ["learning_rate", "loss"], runs: [{ id: "a", v: "1", last: [0.1, 2] }] } as unknown as RunList;
  assert.deepEqual(usualKeys(both), ["metrics.loss", "metrics.learning_rate"]);
});
