import assert from "node:assert/strict";
import test from "node:test";
import { changesOf, entered, nameWith, newToken, problemsByField, twice, type Entered } from "./rerun_changes.ts";
import type { FormValue } from "./wire.ts";

const before: Record<string, FormValue> = {
  name: "resnet", command: "python a.py", instance_count: 1, max_runtime_s: null, hyperparameters: { lr: "0.1", depth: 3 }, environment: { TOKEN: "***" },
};
const form = (): Record<string, Entered> => Object.fromEntries(Object.entries(before).map(([name, value]) => [name, entered(value)]));

test("an untouched form changes nothing", () => assert.deepEqual(changesOf(before, form()), {}));

test("only what was changed is sent, in its type", () => {
  const changed = { ...form(), instance_count: "2", max_runtime_s: "60", name: "resnet" };
  assert.deepEqual(changesOf(before, changed), { instance_count: 2, max_runtime_s: 60 });
});

test("a table is sent as a whole, with the types that its values had", () => {
  const rows = [{ name: "lr", value: "0.2" }, { name: "depth", value: "4" }, { name: "seed", value: "1" }, { name: " ", value: "" }];
  assert.deepEqual(changesOf(before, { ...form(), hyperparameters: rows }), { hyperparameters: { lr: "0.2", depth: 4, seed: "1" } });
});

test("rows that only moved, or are empty, are no change", () => {
  const rows = [{ name: "depth", value: "3" }, { name: "", value: "" }, { name: "lr", value: "0.1" }];
  assert.deepEqual(changesOf(before, { ...form(), hyperparameters: rows }), {});
});

test("what is no number is sent as it is, for the service to refuse", () => {
  assert.deepEqual(changesOf(before, { ...form(), instance_count: "many" }), { instance_count: "many" });
});

test("names that are there twice are found", () => assert.deepEqual(twice([{ name: "a", value: "1" }, { name: "a ", value: "2" }, { name: "b", value: "" }]), ["a"]));

test("problems stand at their fields", () => {
  const message = "instance_count: is 0\nhyperparameters.lr: is 'x'; a number is needed: yes\nIt is late: sleep";
  assert.deepEqual(problemsByField(message, ["instance_count", "hyperparameters"]), {
    instance_count: ["instance_count: is 0"],
    hyperparameters: ["hyperparameters.lr: is 'x'; a number is needed: yes"],
    "": ["It is late: sleep"],
  });
});

test("problems of one line, and with the names of the request, stand at their fields too", () => {
  const message = "labels.a: is 1; a text is needed; environment.KEY: is masked; ComputeResource.EcsCount: is many";
  assert.deepEqual(problemsByField(message, ["labels", "environment", "instance_count"]), {
    labels: ["labels.a: is 1; a text is needed"],
    environment: ["environment.KEY: is masked"],
    instance_count: ["ComputeResource.EcsCount: is many"],
  });
});

test("tokens differ", () => assert.notEqual(newToken(), newToken()));

test("a name follows the numbers that were changed", () => {
  const before = { lr: "0.1", batch_size: "64", optimizer: "adam", api_key: "1" };
  const short = { lr: "lr", batch_size: "bs", optimizer: "optimizer" };
  const named = (name: string, changes: Record<string, string>): string =>
    nameWith(name, before, Object.entries({ ...before, ...changes }).map(([key, value]) => ({ name: key, value })), short);
  assert.equal(named("fit-lr0.1-bs64", {}), "fit-lr0.1-bs64");
  assert.equal(named("fit-lr0.1-bs64", { lr: "0.01" }), "fit-lr0.01-bs64");
  assert.equal(named("fit", { lr: "1e-4", batch_size: "8" }), "fit-lr1e-4-bs8");
  assert.equal(named("fit-lr0.15", { lr: "0.2" }), "fit-lr0.15-lr0.2");
  assert.equal(named("fit", { optimizer: "sgd", api_key: "2", lr: "much" }), "fit");
  assert.equal(named("x".repeat(98), { lr: "0.2" }), "x".repeat(98));
});
