import assert from "node:assert/strict";
import test from "node:test";
import { itemAt, mergedTags, readChoice, writeChoice, type Item, type RunMedia } from "./media_data.ts";

const item = (index: number, step: number): Item => ({ index, step, wall: 0 });
const media = (...tags: [string, string][]): RunMedia => ({
  tags: tags.map(([kind, tag]) => ({ kind, tag, count: 1 })),
  items: [],
  v: "",
  chosen: "",
  error: "",
});

test("a choice is read as it is written", () => {
  const choice = { kind: "image", tag: "a:b/c" } as const;
  assert.deepEqual(readChoice(writeChoice(choice)), choice);
  assert.deepEqual(["", "image:", "sound:a", "image"].map(readChoice), [undefined, undefined, undefined, undefined]);
});

test("tags of several runs are counted, unknown kinds left out", () => {
  const found = mergedTags([media(["text", "t"], ["image", "b"], ["audio", "s"]), media(["image", "b"], ["image", "a"])]);
  assert.deepEqual(found.map(({ kind, tag, runs }) => `${kind} ${tag} ${runs}`), ["image a 1", "image b 2", "text t 1"]);
});

test("the item of a step is the newest up to it", () => {
  const items = [item(0, 10), item(1, 20)];
  assert.deepEqual([5, 10, 19, 99, undefined].map((step) => itemAt(items, step)?.index), [0, 0, 0, 1, 1]);
  assert.equal(itemAt([], 3), undefined);
});
