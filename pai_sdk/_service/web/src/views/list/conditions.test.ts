import assert from "node:assert/strict";
import test from "node:test";
import { valuesIn, withValues } from "./conditions.ts";

test("values of a key, however they are written", () => {
  assert.deepEqual(valuesIn('loss<0.3 status=Running,"Failed" nan>0', "status"), ["Running", "Failed"]);
  assert.deepEqual(valuesIn("status == Running", "status"), ["Running"]);
  assert.deepEqual(valuesIn('name="a status=Running" status!=Failed', "status"), []);
  assert.deepEqual(valuesIn('owner="li \\"x\\", ming"', "owner"), ['li "x", ming']);
});

test("the other conditions stay", () => {
  assert.equal(withValues("loss<0.3", "status", ["Running"]), "loss<0.3 status=Running");
  assert.equal(withValues('status=Running name="my net" nan > 0', "status", ["Running", "Failed"]), 'name="my net" nan>0 status=Running,Failed');
  assert.equal(withValues("status = Running resnet", "status", []), "resnet");
  assert.equal(withValues("", "owner", ["li ming", ""]), 'owner="li ming",""');
});

test("a quote without an end is not lost", () => {
  assert.match(withValues('name="a', "status", ["Failed"]), /^name= " a status=Failed$/);
});
