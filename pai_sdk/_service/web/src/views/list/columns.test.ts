import assert from "node:assert/strict";
import test from "node:test";
import type { RunList } from "../../runs.ts";
import { columnOf, factOf, fitting, keysOf, quoted, usualKeys, widthOf } from "./columns.ts";

const list = {
  tags: ["eval/acc", "loss"],
  runs: [
    { id: "a", v: "1", hparams: { lr: 0.1, seed: 1, note: null }, labels: { "pai-sdk-submission": "5f", team: "nlp" }, last: [null, null], min: [null, 0.5], nonfinite: { last: { nan: [1] } } },
    { id: "b", v: "1", hparams: { lr: 0.2, seed: 1 }, last: [0.9, 0.25], min: [0.1, 0.25] },
  ],
} as unknown as RunList;

test("usual columns are what differs, and metrics", () => {
  assert.deepEqual(usualKeys(list), ["labels.team", "metrics.loss", "metrics.eval/acc", "hparams.lr", "hparams.note"]);
  assert.deepEqual(keysOf(list), ["labels.team", "hparams.lr", "hparams.note", "hparams.seed", "metrics.eval/acc", "metrics.loss", "labels.pai-sdk-submission"]);
});

test("a label that all have with one value tells nothing apart", () => {
  const runs = ["a", "b"].map((id) => ({ id, v: "1", labels: { team: "nlp", kind: id } }));
  assert.deepEqual(usualKeys({ ...list, tags: [], runs }), ["labels.kind"]);
});

test("a cell tells NaN, null and what is missing apart", () => {
  const texts = (key: string): string[] => list.runs.map(columnOf(key, list).text);
  assert.deepEqual(texts("metrics.loss"), ["NaN", "0.25"]);
  assert.deepEqual(texts("metrics.loss.min"), ["0.50", "0.25"]);
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
  const measure = (text: string): number => [...text].reduce((sum, letter) => sum + (letter > "\u2e80" ? 14 : 7), 0);
  assert.equal(widthOf("lr", ["0.1"], measure), 72);
  assert.equal(widthOf("lr", ["0.1", "0.123456789"], measure), 104);
  assert.equal(widthOf("名称", ["short", "一二三四五六七八"], measure), 136);
  assert.equal(widthOf("note", ["x".repeat(1000)], measure), 288);
});

test("columns of a job are there if a job has the value, and owners if there are several", () => {
  const jobs = (...runs: object[]): RunList => ({ tags: [], runs }) as unknown as RunList;
  const failed = { id: "a", status: "Failed", owner: "ann", cause: "out of memory", started_at: 100, ended_at: 160, instance_type: "ecs.gn7i", instance_count: 2 };
  assert.deepEqual(usualKeys(jobs(failed)), ["cause", "duration", "instance_type"]);
  assert.deepEqual(usualKeys(jobs(failed, { id: "b", owner: "bob", cost: 1.5 })), ["cause", "duration", "owner", "cost", "instance_type"]);
  const row = (key: string): string => columnOf(key, jobs(failed)).text(failed as never);
  assert.deepEqual([row("duration"), row("instance_type"), row("cost")], ["1 min 0 s", "ecs.gn7i × 2", ""]);
  const cost = (...currencies: (string | undefined)[]): string => columnOf("cost", jobs(...currencies.map((currency) => ({ cost: 1, currency })))).title;
  const costs = (...all: (number | undefined)[]): string[] => all.map((cost) => columnOf("cost", jobs(...all.map((each) => ({ cost: each })))).text({ cost } as never));
  assert.deepEqual([costs(0.0125, undefined, 0), costs(12.3456, 0.5)], [["0.0125", "", "0.0000"], ["12.35", "0.50"]]);
  assert.deepEqual([cost(undefined), cost("CNY", "CNY"), cost("CNY", "EUR")], ["Cost", "Cost (CNY)", "Cost"]);
});

test("numbers have the same decimals, and their exact value", () => {
  const runs = ["0.1", "0.00025"].map((lr, at) => ({ id: String(at), hparams: { lr }, last: [at / 3] }));
  const column = columnOf("hparams.lr", { tags: ["loss"], runs } as unknown as RunList);
  assert.deepEqual(runs.map((run) => column.text(run as never)), ["0.10000", "0.00025"]);
  assert.equal(column.exact?.(runs[0] as never), "0.1");
});

test("usual columns that have no room are left out, those that tell least first", () => {
  const keys = ["cause", "duration", "instance_type", "labels.team", "metrics.loss", "metrics.acc", "hparams.lr", "hparams.seed"];
  const kept = (room: number, first = ""): string[] => [...fitting(keys, keys.map(() => 100), room, first)].sort();
  assert.equal(kept(800).length, 8);
  assert.deepEqual(kept(400), ["cause", "duration", "hparams.lr", "metrics.loss"]);
  assert.deepEqual(kept(400, "hparams.seed"), ["cause", "duration", "hparams.seed", "metrics.loss"]);
  assert.deepEqual(kept(0, "labels.team"), ["labels.team"]);
  assert.deepEqual([...fitting(["cause", "duration"], [300, 100], 200, "")], ["duration"]);
});

test("metrics by which runs are judged come before others", () => {
  const both = { tags: ["learning_rate", "loss"], runs: [{ id: "a", v: "1", last: [0.1, 2] }] } as unknown as RunList;
  assert.deepEqual(usualKeys(both), ["metrics.loss", "metrics.learning_rate"]);
});
