import assert from "node:assert/strict";
import test from "node:test";
import { durationTicks, linearTicks, logTicks, timeTicks } from "./ticks.ts";

const texts = (ticks: readonly (readonly [number, string])[]): string[] => ticks.map(([, text]) => text);

test("round numbers", () => {
  assert.deepEqual(texts(linearTicks([0, 1], 5)), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
  assert.deepEqual(texts(linearTicks([-3, 7], 3)), ["0", "5"]);
  assert.deepEqual(texts(linearTicks([1000.1, 1000.5], 4)), ["1000.1", "1000.2", "1000.3", "1000.4", "1000.5"]);
  assert.equal(linearTicks([5, 5], 5).length <= 50, true);
});

test("powers of ten, with numbers between them where there is room", () => {
  assert.deepEqual(texts(logTicks([1, 1000], 4)), ["1", "10", "100", "1000"]);
  assert.deepEqual(texts(logTicks([1, 20], 8)), ["1", "2", "5", "10", "20"]);
  assert.ok(logTicks([1e-12, 1e12], 6).length <= 7);
  assert.deepEqual(texts(logTicks([1, 2], 2)), ["1", "1.5", "2"]);
});

test("lengths of time", () => {
  assert.deepEqual(texts(durationTicks([0, 120], 4)), ["0", "30 s", "60 s", "90 s", "2 min"]);
  assert.deepEqual(texts(durationTicks([0, 7200], 4)), ["0", "30 min", "1:00 h", "1:30 h", "2:00 h"]);
});

test("moments: the day where it begins, and seconds where they are what differs", () => {
  const noon = new Date(2026, 10, 29, 12).getTime() / 1000;
  assert.deepEqual(texts(timeTicks([noon, noon + 3], 4)), ["12:00:00", "12:00:01", "12:00:02", "12:00:03"]);
  assert.deepEqual(texts(timeTicks([noon, noon + 86400], 3)), ["11-29 12:00", "11-30 00:00", "12:00"]);
});
