import assert from "node:assert/strict";
import test from "node:test";
import type { Column, Columns } from "../columns.ts";
import { conditionOf, filteredTags, isOfService, orderedTags, pythonOf, readAnswers, readLimits, rounded, sections, writeLimits, type Question } from "./compared.ts";

const names = { label: (id: string) => `run ${id}`, colour: () => "red" };
const question: Question = { runs: ["a", "b"], x: "step", buckets: 250, smooth: 0, group_by: [], last: true, precision: "single" };

function columns(described: object, given: Record<string, Column["values"]>): Columns {
  const header = { comparisons: [{ tag: "loss", points: 4, shown: 4, exact: false, curves: ["a", "b"], ...described }] };
  return { header, columns: Object.entries(given).map(([name, values]) => ({ name, tag: "loss", values })) };
}

test("all points of curves with an x of their own; NaN is noted", () => {
  const given = { length: new Uint32Array([2, 3]), x: new Float64Array([0, 1, 0, 2, 4]), value: new Float64Array([1, 2, 3, NaN, -Infinity]) };
  const [answer] = readAnswers(columns({ exact: true }, given), names);
  assert.deepEqual(answer?.curves.map((curve) => [curve.label, [...(curve.x as Float64Array)]]), [["run a", [0, 1]], ["run b", [0, 2, 4]]]);
  assert.deepEqual(answer?.curves[1]?.odd, [{ x: 2, nan: 1, inf: 0 }, { x: 4, nan: 0, inf: 1 }]);
  assert.deepEqual([answer?.nan, answer?.inf, answer?.isExact], [1, 1, true]);
});

test("buckets without points are left out, those with only NaN are gaps", () => {
  const given = {
    edges: new Float64Array([0, 10, 20, 30]),
    low: new Float32Array([1, NaN, 2, 1, NaN, 2]),
    high: new Float32Array([3, NaN, 4, 3, NaN, 4]),
    nonfinite_curve: new Uint32Array([1]),
    nonfinite_bucket: new Uint32Array([1]),
    nonfinite_nan: new Uint32Array([5]),
    nonfinite_inf: new Uint32Array([0]),
  };
  const [answer] = readAnswers(columns({}, given), names);
  assert.deepEqual([...(answer?.curves[0]?.x as Float64Array)], [5, 25]);
  assert.deepEqual([...(answer?.curves[0]?.high as Float64Array)], [3, 4]);
  assert.deepEqual([...(answer?.curves[1]?.x as Float64Array)], [5, 15, 25]);
  assert.deepEqual(answer?.curves[1]?.odd, [{ x: 15, nan: 5, inf: 0 }]);
  assert.deepEqual([answer?.buckets, answer?.nan], [3, 5]);
});

test("groups say how many runs they are of", () => {
  const given = { edges: new Float64Array([0, 1]), value: new Float32Array([7]) };
  const [answer] = readAnswers(columns({ curves: [{ name: "lr=0.1", runs: ["a", "b"] }] }, given), names);
  assert.equal(answer?.curves[0]?.label, "lr=0.1 (n = 2)");
  assert.deepEqual(answer?.curves[0]?.runs, ["a", "b"]);
});

test("metrics by their prefix; a filter of words", () => {
  assert.deepEqual([...sections(["eval/acc", "loss", "eval/f1"])], [["", ["loss"]], ["eval", ["eval/acc", "eval/f1"]]]);
  assert.deepEqual([...sections(["eval/acc", "loss", "eval/f1"], 3)], [["", ["loss", "eval/acc", "eval/f1"]]], "few metrics are one section");
  assert.deepEqual([...sections([], 3)], [], "no metrics have no section");
  assert.deepEqual(filteredTags(["eval/acc", "loss", "eval/f1"], "EVAL f"), ["eval/f1"]);
});

test("a condition for the filter; names with spaces are quoted", () => {
  assert.equal(conditionOf("eval/loss", "nan"), "metrics.eval/loss.nan>0");
  assert.equal(conditionOf('my "loss"', "inf"), 'metrics."my \\"loss\\"".inf>0');
});

test("zooms are written in few digits, and exactly enough", () => {
  assert.deepEqual(rounded([103.3333333, 250.98765]), [103.33, 250.99]);
  assert.deepEqual(rounded([1.79e9 + 0.1234567, 1.79e9 + 10.7654321]), [1790000000.123, 1790000010.765]);
});

test("the same chart in Python", () => {
  const code = { session: "", place: "runs", filter: "loss<1", runs: undefined, question, tag: "loss", logY: false };
  assert.equal(
    pythonOf(code),
    'from pai_sdk import RunManager\n\nwith RunManager("runs") as manager:\n    manager.wait_until_loaded()\n    picture = manager.compare("loss<1", "loss").plot()\npicture\n',
  );
  const zoomed = { ...question, x: "wall", from: 1, to: 2, smooth: 0.6, group_by: ["hparams.lr"], band: "std" };
  const text = pythonOf({ ...code, session: 'Session("cn-hangzhou", "1")', question: zoomed, runs: ["a", "b"], logY: true });
  assert.ok(text.includes('manager.compare(["a", "b"], "loss", x="wall", start=1, end=2, smooth=0.6, group_by=["hparams.lr"], band="std").plot(log_y=True)'));
  assert.ok(pythonOf({ ...code, question: { ...question, x: "metric:tokens" } }).includes('"loss", x="metric:tokens")'));
  assert.deepEqual(["owner=a loss<1", "labels.owner=a", "loss<1 star=true", "loss<1"].map(isOfService), [true, true, true, false]);
  assert.ok(pythonOf({ ...code, filter: "name=a\u202eb" }).includes('compare("name=a\\u202eb"'));
  assert.ok(text.includes('from pai_sdk import Session\n\nwith Session("cn-hangzhou", "1").watch() as manager:'));
});

test("metrics by their use: those of the filter and order first, then those that most runs have", () => {
  const tags = ["a", "eval/f1", "loss", "rare"];
  const having = (at: number): number => [3, 3, 4, 1][at] as number;
  assert.deepEqual(orderedTags(tags, having, "-created "), ["loss", "a", "eval/f1", "rare"]);
  assert.deepEqual(orderedTags(tags, having, "-metrics.rare status=Running"), ["rare", "loss", "a", "eval/f1"]);
  assert.deepEqual(orderedTags(tags, having, "-created eval/f1.max>0.3"), ["eval/f1", "loss", "a", "rare"]);
});

test("limits of y in the address", () => {
  for (const text of ["0..2", "..2", "-1.5..", "1e-7..1e9", ""]) assert.equal(writeLimits(readLimits(text)).replace("1000000000", "1e9"), text);
  assert.deepEqual(readLimits("x..y"), { min: undefined, max: undefined });
});
