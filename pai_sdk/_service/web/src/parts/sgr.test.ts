import assert from "node:assert/strict";
import test from "node:test";
import { coloursOf, contrast, plainText, readable, readSpans } from "./sgr.ts";

test("a line without escapes is one span", () => {
  assert.deepEqual(readSpans("hello"), [{ text: "hello", at: 0, style: {} }]);
  assert.deepEqual(readSpans(""), [{ text: "", at: 0, style: {} }]);
});

test("colours and looks begin and end", () => {
  const spans = readSpans("a\x1b[1;31mb\x1b[22mc\x1b[0md");
  assert.deepEqual(spans.map(({ text }) => text), ["a", "b", "c", "d"]);
  assert.deepEqual(spans[1]?.style, { bold: true, text: [205, 49, 49] });
  assert.deepEqual(spans[2]?.style, { text: [205, 49, 49] });
  assert.deepEqual(spans[3]?.style, {});
  assert.equal(spans[1]?.at, 8);
});

test("an empty sequence resets", () => {
  assert.deepEqual(readSpans("\x1b[4mx\x1b[my")[1]?.style, {});
});

test("256 and true colours, with semicolons and colons", () => {
  assert.deepEqual(readSpans("\x1b[38;5;196mx")[0]?.style.text, [255, 0, 0]);
  assert.deepEqual(readSpans("\x1b[48;5;244mx")[0]?.style.back, [128, 128, 128]);
  assert.deepEqual(readSpans("\x1b[38;2;1;2;3;1mx")[0]?.style, { text: [1, 2, 3], bold: true });
  assert.deepEqual(readSpans("\x1b[38:2::1:2:3mx")[0]?.style.text, [1, 2, 3]);
  assert.deepEqual(readSpans("\x1b[38;2;999;2;3mx")[0]?.style.text, [255, 2, 3]);
  assert.deepEqual(readSpans("\x1b[38;5;999mx")[0]?.style, {});
});

test("other sequences are dropped", () => {
  assert.equal(plainText("\x1b[2K\x1b[1Aa\x1b]0;title\x07b\x1b]8;;http://x\x1b\\c\x1b(Bd\x1b7e\x1b[?25lf"), "abcdef");
  assert.equal(plainText("cut \x1b[3"), "cut [3");
  assert.equal(plainText("end\x1b"), "end");
});

test("hostile text stays text", () => {
  assert.equal(readSpans("\x1b[31m<script>alert(1)</script>")[0]?.text, "<script>alert(1)</script>");
  const started = performance.now();
  readSpans("\x1b[" + "1;".repeat(500_000) + "x" + "\x1b]".repeat(100_000));
  assert.ok(performance.now() - started < 2000);
});

test("colours can be read on a light and on a dark page", () => {
  for (const colour of [[255, 255, 0], [0, 0, 0], [255, 255, 255], [36, 114, 200]] as const) {
    assert.ok(contrast(readable(colour, [244, 246, 248], 0), [244, 246, 248]) >= 4.5);
    assert.ok(contrast(readable(colour, [32, 37, 45], 255), [32, 37, 45]) >= 4.5);
  }
  assert.deepEqual(coloursOf({ back: [0, 0, 0], text: [10, 10, 10] }), { color: "rgb(255 255 255)", background: "rgb(0 0 0)" });
  assert.deepEqual(coloursOf({ inverse: true }), { color: "var(--back)", background: "var(--text)" });
  assert.deepEqual(coloursOf({}), {});
});
