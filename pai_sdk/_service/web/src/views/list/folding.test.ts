import assert from "node:assert/strict";
import { test } from "node:test";
import type { Run } from "../../runs.ts";
import { fold, groupOf, objectiveOf, outcomeOf } from "./folding.ts";

function trial(number: number, status: string, loss: number | null, more: Record<string, string> = {}): Run {
  const labels = { "pai-sdk-study": "s1", "pai-sdk-trial": String(number), "pai-sdk-objective": "minimize loss", "pai-sdk-trials": "20", team: "nlp", ...more };
  return { id: `job${number}`, v: "1", name: `digits-${number}`, status, created_at: number, labels, hparams: { lr: number }, last: [null, loss] };
}

const tags = ["accuracy", "loss"];
const other: Run = { id: "other", v: "1", name: "other", status: "Running" };

test("trials of one study are one row with the best value, where the first of them is", () => {
  const runs = [trial(3, "Running", 0.1), other, trial(2, "Succeed", 0.4), trial(1, "Succeed", 0.3), trial(0, "Failed", 0.2)];
  const [row, second, ...rest] = fold(runs, tags, new Set());
  assert.deepEqual([row?.id, row?.name, row?.status, second?.id, rest.length], ["study:s1", "digits", "Running", "other", 0]);
  assert.deepEqual([row?.last, row?.hparams], [[null, 0.3], { lr: 1 }]); // not of running or failed trials
  assert.deepEqual(row?.labels?.team, "nlp");
  assert.equal(row?.labels?.["pai-sdk-trial"], undefined);
  const group = row?.group;
  assert.deepEqual(group?.counts, { done: 2, running: 1, failed: 1, stopped: 0, pruned: 0, waiting: 0 });
  assert.deepEqual([group?.total, group?.best?.id, group?.all.length], [20, "job1", 4]);
});

test("a group that is open has its runs below it", () => {
  const runs = [trial(1, "Succeed", 0.3), other, trial(0, "Succeed", 0.2)];
  const rows = fold(runs, tags, new Set(["study:s1"]));
  assert.deepEqual(rows.map(({ id, isWithin }) => [id, Boolean(isWithin)]), [["study:s1", false], ["job1", true], ["job0", true], ["other", false]]);
});

test("one trial alone is a run as others", () => {
  assert.deepEqual(fold([trial(0, "Running", null), other], tags, new Set()).map(({ id }) => id), ["job0", "other"]);
});

test("a trial that was submitted again counts once, and a pruned one is no failure", () => {
  const again = { ...trial(0, "Succeed", 0.5), id: "again", created_at: 9 };
  const group = groupOf("study:s1", [again, trial(1, "Terminated", 0.9, { "pai-sdk-pruned": "3" }), trial(0, "Failed", null)], tags);
  assert.deepEqual([group.counts.done, group.counts.pruned, group.counts.failed, group.all.length], [1, 1, 0, 3]);
});

test("steps of a run of a pipeline", () => {
  const step = (name: string, status: string): Run => ({ id: name, v: "1", name: `flow-${name}`, status, labels: { "pai-sdk-pipeline-run": "r:1", "pai-sdk-step": name, "pai-sdk-pipeline": "flow" } });
  const [row] = fold([step("a", "Succeed"), step("b", "Queuing")], tags, new Set());
  assert.deepEqual([row?.id, row?.group?.id, row?.name, row?.group?.total, row?.group?.best], ["pipeline:r:1", "r:1", "flow", 2, undefined]);
  assert.deepEqual(row?.group?.counts.waiting, 1);
});

test("objectives", () => {
  assert.deepEqual(objectiveOf("maximize eval/acc at best"), { metric: "eval/acc", isMax: true, fact: "max" });
  assert.deepEqual(objectiveOf("minimize my loss at 100"), { metric: "my loss", isMax: false, fact: "last" });
  assert.equal(objectiveOf(undefined), undefined);
  assert.equal(outcomeOf({ id: "x", v: "", status: "Dequeued" }), "waiting");
});
