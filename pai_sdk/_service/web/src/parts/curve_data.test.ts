import assert from "node:assert/strict";
import test from "node:test";
import * as data from "./curve_data.ts";

const view: data.View = { x: [0, 10], y: [0, 10], logX: false, logY: false, left: 0, top: 0, width: 100, height: 100 };
const curve = (x: number[], values: number[], more: Partial<data.Curve> = {}): data.Curve => ({ name: "a", label: "a", colour: "red", x, values, ...more });

function drawn(one: data.Curve, of: data.View = view, withBand = false): string {
  const out: string[] = [];
  const pen = { moveTo: (x: number, y: number) => out.push(`M${x},${Math.round(y) + 0}`), lineTo: (x: number, y: number) => out.push(`${x},${Math.round(y) + 0}`) };
  data.drawLine(pen, one, of, withBand);
  return out.filter((text) => !text.includes(".01,")).join(" ");
}

test("a line has a gap where a value is no number, and a single point between two gaps is drawn", () => {
  assert.equal(drawn(curve([0, 1, 2, 3, 4], [1, NaN, 3, NaN, 5])), "M0,90 M20,70 M40,50");
  const out: string[] = [];
  data.drawLine({ moveTo: () => out.push("M"), lineTo: () => out.push("L") }, curve([0, 1, 2], [NaN, 1, NaN]), view, false);
  assert.deepEqual(out, ["M", "L"]);
});

test("a bucket is drawn through both of its extremes, beginning with the nearer one", () => {
  const one = curve([0, 5], [], { low: [1, 2], high: [3, 8] });
  delete one.values;
  assert.equal(drawn(one), "M0,90 0,70 50,80 50,20");
});

test("values that are not above 0 are not on a logarithmic axis, and are counted", () => {
  const one = curve([1, 2, 3], [1, 0, 10]);
  assert.equal(drawn(one, { ...view, y: [1, 10], logY: true }), "M10,100 M30,0");
  assert.equal(data.countNotAboveZero([one], [0, 10]), 1);
  assert.deepEqual(data.rangeOfY([one], [0, 2.5], true), [1 / 1.02, 1.02]);
});

test("NaN and infinities do not change the range of y, and belong to the range of x", () => {
  const one = curve([0, 1, 2], [1, Infinity, NaN], { odd: [{ x: 9, nan: 1, inf: 0 }] });
  const [low, high] = data.rangeOfY([one], [0, 10]) as data.Range;
  assert.ok(low < 1 && high > 1 && high < 2);
  assert.deepEqual(data.rangeOfX([one]), [0, 9]);
  assert.equal(data.rangeOfY([curve([0], [NaN])], [0, 1]), undefined);
});

test("only values of the view count for the range of y", () => {
  const [low, high] = data.rangeOfY([curve([0, 1, 2], [1000, 1, 2])], [1, 2]) as data.Range;
  assert.ok(low > 0 && high < 3);
});

test("the nearest point; none before the first and behind the last one", () => {
  const one = curve([0, 10, 20], [1, 2, 3]);
  assert.equal(data.pointAt(one, 14)?.value, 2);
  assert.equal(data.pointAt(one, 16)?.value, 3);
  assert.equal(data.pointAt(one, 40), undefined);
  assert.equal(data.pointAt(curve([], []), 1), undefined);
});

test("the curve that is nearest to the mouse, also between two points far away from each other", () => {
  const [low, high] = [curve([0, 10], [1, 1], { name: "low" }), curve([0, 10], [9, 9], { name: "high" })];
  assert.equal(data.nearestCurve([low, high], view, 50, 85, 24)?.name, "low");
  assert.equal(data.nearestCurve([low, high], view, 50, 12, 24)?.name, "high");
  assert.equal(data.nearestCurve([low, high], view, 50, 50, 24), undefined);
});

test("last, least and largest value are those of the view", () => {
  const one = curve([0, 1, 2], [5, 1, 3], { low: [4, 0, 2], high: [6, 2, 4] });
  assert.deepEqual(data.extremes(one, [0, 2]), { min: 0, max: 6, last: 3 });
  assert.deepEqual(data.extremes(one, [0, 1.5]), { min: 0, max: 6, last: 1 });
  assert.deepEqual(data.extremes({ ...one, runs: ["a"] }, [0, 2]), { min: 1, max: 5, last: 3 });
});

test("limits of y: set ones, and without the outermost values", () => {
  const one = curve(Array.from({ length: 101 }, (_, at) => at), Array.from({ length: 101 }, (_, at) => (at === 50 ? 1e9 : at)));
  const none = { min: undefined, max: undefined, isTrimmed: false };
  assert.deepEqual(data.limitedRangeOfY([one], [0, 100], false, none)?.range, data.rangeOfY([one], [0, 100]));
  const { range, outside } = data.limitedRangeOfY([one], [0, 100], false, { ...none, isTrimmed: true }) as { range: data.Range; outside: number };
  assert.ok(range[0] > -4 && range[0] < 1 && range[1] > 99 && range[1] < 105 && outside === 1);
  assert.deepEqual(data.limitedRangeOfY([one], [0, 100], false, { ...none, min: 10, max: 20 }), { range: [10, 20], outside: 90 });
  assert.deepEqual(data.limitedRangeOfY([one], [0, 9], false, { ...none, min: 50 }), { range: [50, 100], outside: 10 });
  assert.deepEqual(data.limitedRangeOfY([one], [0, 9], true, { ...none, min: -1, max: 5 })?.range.map(Math.round), [1, 5]);
  assert.equal(data.limitedRangeOfY([curve([0], [NaN])], [0, 1], false, none), undefined);
});

test("points near an x: all of them the highest first, or those beside a place", () => {
  const some = Array.from({ length: 20 }, (_, at) => curve([0, 5, 10], [at / 2, at / 2, at / 2], { name: String(at) }));
  const all = data.pointsNear(some.slice(0, 3), view, 5, 0, 12);
  assert.deepEqual([all.rows.map(({ curve: { name } }) => name), all.count], [["2", "1", "0"], 3]);
  const near = data.pointsNear(some, view, 5, 50, 3);
  assert.deepEqual([near.rows.map(({ curve: { name } }) => name), near.count], [["11", "10", "9"], 20]);
  const apart = curve([0, 90], [1, 1]);
  assert.equal(data.pointsNear([apart], { ...view, x: [0, 90] }, 45, 0, 3).count, 0);
  const odd = data.pointsNear([curve([5], [NaN], { name: "nan" }), ...some.slice(0, 1)], view, 5, 0, 3);
  assert.deepEqual(odd.rows.map(({ curve: { name } }) => name), ["0", "nan"]);
  assert.equal(data.nearestX(some, 6), 5);
  assert.equal(data.nearestX([], 6), undefined);
});

test("marks of values that are no numbers: those of one place once, dense ones together", () => {
  const odd = (places: number[], colour: string) => curve([], [], { colour, odd: places.map((x) => ({ x, nan: 1, inf: 0 })) });
  const options = { ofX: (x: number) => x * 10, within: [0, 10] as const, space: 9 };
  assert.deepEqual(data.oddRanges([odd([1, 5], "red"), odd([1, 11], "blue")], "nan", options), [{ from: 10, to: 10, colour: "" }, { from: 50, to: 50, colour: "red" }]);
  assert.deepEqual(data.oddRanges([odd([1, 1.5, 2, 2.5], "red")], "nan", options), [{ from: 10, to: 25, colour: "" }]);
  assert.deepEqual(data.oddRanges([odd([1], "red")], "inf", options), []);
});
