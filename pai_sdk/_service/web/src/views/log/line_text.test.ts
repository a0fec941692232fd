import assert from "node:assert/strict";
import test from "node:test";
import { drawn, placeOf, placesOf, statesOf, visible } from "./line_text.ts";

test("a progress bar is folded to its last state", () => {
  assert.deepEqual(statesOf("\r10%\r20%\r"), ["10%", "20%"]);
  assert.deepEqual(statesOf("plain"), ["plain"]);
  assert.deepEqual(statesOf("\r\r"), [""]);
  const line = drawn("loss\r10%\r20%\r");
  assert.equal(line.pieces.map(({ text }) => text).join(""), "20%");
  assert.equal(line.states, 3);
});

test("hits are marked where they are, across colours and after folded states", () => {
  const line = drawn("old\r\x1b[31mred\x1b[0m end", [[9, 12], [17, 20]]);
  assert.deepEqual(line.pieces.map(({ text, isHit }) => [text, isHit]), [["red", true], [" ", false], ["end", true]]);
  assert.deepEqual(drawn("abc", [[1, 2]]).pieces.map(({ text, isHit }) => [text, isHit]), [["a", false], ["b", true], ["c", false]]);
});

test("a long line is cut", () => {
  const line = drawn("x".repeat(12_000));
  assert.equal(line.cut, 10_000);
  assert.equal(line.pieces[0]?.text.length, 2000);
});

test("errors and warnings are found, words that have them are not", () => {
  assert.equal(drawn("2024 ERROR disk full").kind, "bad-line");
  assert.equal(drawn("Traceback (most recent call last):").kind, "bad-line");
  assert.equal(drawn("torch.OutOfMemoryError: CUDA").kind, "bad-line");
  assert.equal(drawn("WARNING: slow").kind, "warn-line");
  assert.equal(drawn("mean error 0.3, FORWARD").kind, "");
});

test("control characters and those that turn text around are shown", () => {
  assert.equal(visible("a\x00b\x07c\x7fd\te"), "a␀b␇c␡d\te");
  assert.equal(visible("user\u202egpj.exe"), "user�gpj.exe");
});

test("places of a text", () => {
  assert.deepEqual(placesOf("Step step", "step", true), [[0, 4], [5, 9]]);
  assert.deepEqual(placesOf("Step step", "step", false), [[5, 9]]);
  assert.deepEqual(placesOf("aaa", "", false), []);
  assert.equal(placeOf("😀x", 1), 2);
});
