import assert from "node:assert/strict";
import { test } from "node:test";
import { written } from "./direction.ts";

test("characters that turn the direction are written as codes, others stay", () => {
  assert.equal(written("report\u202egnp.exe"), "report\\u202egnp.exe");
  assert.equal(written("\u2066a\u2069\u200f\u061c"), "\\u2066a\\u2069\\u200f\\u061c");
  assert.equal(written("שלום 模型 é 👩‍🚀"), "שלום 模型 é 👩‍🚀");
});
