import assert from "node:assert/strict";
import { test } from "node:test";
import { rowsOf, sentenceOf } from "./happened.ts";
import type { Mark } from "./wire.ts";

const mark = (kind: Mark["kind"], text: string, time: number): Mark => ({ kind, text, time, step: null });

test("the event of a status is in its row", () => {
  const rows = rowsOf([mark("status", "Submitted", 0.95), mark("status", "Running", 1), mark("event", "Instance job1-master-0 is Pending.", 1), mark("event", "The job is running.", 1.00005)], "job1");
  assert.deepEqual(rows.map(({ status, text }) => [status, text]), [["Submitted", ""], ["Running", "The job is running."], ["", "Instance master-0 is Pending."]]);
});

test("what is repeated is one row, at its last time", () => {
  const events = [0, 1, 2].map((at) => mark("event", `Instance job1-worker-${at} is Running.`, 10 + at));
  const rows = rowsOf([...events, mark("checkpoint", "checkpoint 100", 11.5), mark("not_finite", "loss is nan", 20)], "job1");
  assert.deepEqual(rows.map(({ text, earlier }) => [text, earlier.length]), [["checkpoint 100", 0], ["Instance worker-2 is Running.", 2], ["loss is nan", 0]]);
  assert.deepEqual(rows[1]?.earlier.map(({ time }) => time), [10, 11]);
});

test("a long text is its first sentence and the rest", () => {
  assert.deepEqual(sentenceOf("Short. Text."), ["Short. Text.", ""]);
  const [first, rest] = sentenceOf(`Jobs run as processes, not in containers: the image ${"x".repeat(100)} is not used.`);
  assert.equal(first, "Jobs run as processes, not in containers:");
  assert.match(rest, /^the image/);
  assert.ok(sentenceOf("word ".repeat(40))[0].length < 120);
});
