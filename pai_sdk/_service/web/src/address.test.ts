import assert from "node:assert/strict";
import test from "node:test";
import { readFields, writeFields } from "./address.ts";

test("an address keeps every value", () => {
  const fields = { q: 'hparams.lr<=0.1 labels.team="a&b"', only: "x#1,y+2", tag: "eval/loss", odd: "100%" };
  assert.deepEqual(readFields(`#${writeFields(fields)}`), fields);
});

test("an address is readable", () => {
  assert.equal(writeFields({ view: "curves", q: "status=Running loss<0.3", sort: "" }), "view=curves&q=status=Running+loss<0.3");
});

test("a browser's own encoding and broken encodings are read", () => {
  assert.deepEqual(readFields("#q=loss%3C0.3&p=50%"), { q: "loss<0.3", p: "50%" });
});
