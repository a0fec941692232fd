import assert from "node:assert/strict";
import test from "node:test";
import { svgOf } from "./picture.ts";

const looks = { width: 600, height: 200, back: "#fff", text: "#000", grid: "#ddd", bad: "#b00", colourOf: () => "#123456" };
const parts = { title: "loss", x: [0, 10] as const, y: [0, 1] as const, logX: false, logY: false, ticksX: [[5, "5"]] as const, ticksY: [[0.5, "0.5"]] as const };

test("a picture has the title, the axes, the curves with their names, and signs for NaN", () => {
  const curve = { name: "a", label: "first run", colour: "red", x: [0, 10], values: [0, 1], odd: [{ x: 5, nan: 1, inf: 0 }] };
  const svg = svgOf({ ...parts, curves: [curve] }, looks);
  for (const text of [">loss</text>", ">5</text>", ">0.5</text>", ">first run</text>", 'stroke="#123456"', 'fill="#123456"']) assert.ok(svg.includes(text), text);
});

test("names of runs and metrics cannot become elements", () => {
  const curve = { name: "a", label: "<script>alert(1)</script>\u0007", colour: "red", x: [0], values: [0] };
  const svg = svgOf({ ...parts, title: '"><img src=x>', curves: [curve] }, looks);
  assert.ok(!svg.includes("<script") && !svg.includes("<img") && !svg.includes("\u0007"));
});
