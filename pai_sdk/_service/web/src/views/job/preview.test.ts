import assert from "node:assert/strict";
import test from "node:test";
import { previewOf, rowsOf } from "./preview.ts";

const bytes = (text: string): Uint8Array => Uint8Array.from(text, (sign) => sign.charCodeAt(0));

test("a table is read with its quotes, and a part without its last row", () => {
  assert.deepEqual(rowsOf('a,"b, ""c""\n2",d\r\n1,,3', ",", true), [["a", 'b, "c"\n2', "d"], ["1", "", "3"]]);
  assert.deepEqual(rowsOf("a\tb\n1\t2", "\t", false), [["a", "b"]]);
  assert.deepEqual(rowsOf("", ",", true), []);
});

test("a picture is one by its first bytes, and only if it is whole", () => {
  assert.deepEqual(previewOf("a.txt", bytes("\x89PNG\r\n\x1a\n\0"), true), { kind: "picture", type: "image/png" });
  assert.deepEqual(previewOf("a.png", bytes("\x89PNG\r\n\x1a\n\0"), false), { kind: "binary" });
  assert.deepEqual(previewOf("a.png", bytes("<script>"), true), { kind: "text", text: "<script>" });
  assert.deepEqual(previewOf("a.SVG", bytes("<svg/>"), true), { kind: "picture", type: "image/svg+xml" });
  assert.equal(previewOf("a.svg", bytes("<svg"), false).kind, "text");
  assert.deepEqual(previewOf("x.webp", bytes("RIFF....WAVE"), true), { kind: "text", text: "RIFF....WAVE" });
});

test("JSON is laid out, other text is shown without control characters", () => {
  assert.deepEqual(previewOf("a.json", bytes('{"a":[1]}'), true), { kind: "text", text: '{\n  "a": [\n    1\n  ]\n}' });
  assert.deepEqual(previewOf("a.json", bytes("{"), true), { kind: "text", text: "{" });
  assert.deepEqual(previewOf("a", bytes("x\x1b[1m\r\ny"), true), { kind: "text", text: "x�[1m\ny" });
  assert.deepEqual(previewOf("a.bin", bytes("\0\x01"), true), { kind: "binary" });
});
