import assert from "node:assert/strict";
import test from "node:test";
import { itemAt, mergedTags, readChoice, writeChoice, type Item, type RunPart } from "./media_data.ts";

const item = (index: number, step: number): Item => ({ index, step, wall: 0 });
const run = (...media: string[]): RunPart => ({ id: "", v: "", media });

test("a choice is read as it is written", () => {
  const choice = { kind: "image", tag: "a:b/c" } as const;
  assert.deepEqual(readChoice(writeChoice(choice)), choice);
  assert.deepEqual(["", "image:", "sound:a", "image"].map(readChoice), [undefined, undefined, undefined, undefined]);
});

test("tags of several runs come once, unknown kinds are left out", () => {
  const found = mergedTags([run("text:t", "image:b", "audio:s"), run("image:b", "image:a:c"), { id: "", v: "" }]);
  assert.deepEqual(found.map(writeChoice), ["image:a:c", "image:b", "text:t"]);
});

test("the item of a step is the newest up to it", () => {
  const items = [item(0, 10), item(1, 20)];
  assert.deepEqual([5, 10, 19, 99, undefined].map((step) => itemAt(items, step)?.index), [0, 0, 0, 1, 1]);
  assert.equal(itemAt([], 3), undefined);
});
