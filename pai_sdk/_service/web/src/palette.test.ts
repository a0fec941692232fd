import assert from "node:assert/strict";
import test from "node:test";
import { colourIn, markOf, PALETTES, slotsOf } from "./palette.ts";

const ids = Array.from({ length: 200 }, (_, at) => `run-${at}`);

test("a run has one colour in a theme, and 24 are in use", () => {
  for (const theme of ["light", "dark"] as const) assert.equal(new Set(ids.map((id) => colourIn(theme, id))).size, 24);
});

test("up to eight runs have clearly different colours, and the first keeps its hue", () => {
  for (let begin = 0; begin + 8 <= ids.length; begin += 8) {
    const some = ids.slice(begin, begin + 8);
    const slots = slotsOf(some);
    assert.equal(new Set(slots.values()).size, 8);
    const [first] = some as [string];
    const hue = (colour: string) => colour.split(" ")[0];
    assert.equal(hue(colourIn("light", first, slots.get(first))), hue(colourIn("light", first)));
  }
  assert.equal(slotsOf(ids.slice(0, 9)).size, 0);
});

test("marks of names are short and differ", () => {
  assert.ok(ids.every((id) => /^[0-9a-z]{6}$/.test(markOf(id))));
  assert.equal(new Set(ids.map(markOf)).size, ids.length);
});

// What people without one kind of cones see, in linear light (Machado, Oliveira and Fernandes, severity 1).
const EYES = {
  all: [1, 0, 0, 0, 1, 0, 0, 0, 1],
  noRed: [0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216, -0.003882, -0.048116, 1.051998],
  noGreen: [0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.01182, 0.04294, 0.968881],
  noBlue: [1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602, 0.004733, 0.691367, 0.3039],
};
const BACKS = { light: 1, dark: 0.0084 }; // luminance of --back
type Three = readonly number[];
const times = (matrix: Three, [r, g, b]: Three): number[] => [0, 3, 6].map((at) => (matrix[at] as number) * (r as number) + (matrix[at + 1] as number) * (g as number) + (matrix[at + 2] as number) * (b as number));

function linear([hue, saturation, lightness]: Three): number[] {
  const [h, s, l] = [(hue as number) / 30, (saturation as number) / 100, (lightness as number) / 100];
  return [0, 8, 4].map((n) => {
    const k = (n + h) % 12;
    const value = l - s * Math.min(l, 1 - l) * Math.max(-1, Math.min(k - 3, 9 - k, 1));
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
}

function oklab(rgb: Three): number[] {
  const cones = times([0.41222, 0.53633, 0.05145, 0.2119, 0.6807, 0.1074, 0.0883, 0.28172, 0.62998], rgb.map((one) => Math.min(1, Math.max(0, one))));
  return times([0.21045, 0.79362, -0.00407, 1.978, -2.42859, 0.45059, 0.0259, 0.78277, -0.80868], cones.map(Math.cbrt));
}

for (const theme of ["light", "dark"] as const) {
  test(`colours are distinct for all eyes, and seen on the background: ${theme}`, () => {
    const colours = PALETTES[theme].map(linear);
    for (const [r, g, b] of colours as [number, number, number][]) {
      const [low, high] = [0.2126 * r + 0.7152 * g + 0.0722 * b, BACKS[theme]].sort((one, other) => one - other) as [number, number];
      assert.ok((high + 0.05) / (low + 0.05) > 2.95);
    }
    for (const [name, eye] of Object.entries(EYES)) {
      const seen = colours.map((colour) => oklab(times(eye, colour)));
      for (let one = 0; one < seen.length; one++) {
        for (let other = 0; other < one; other++) {
          assert.ok(Math.hypot(...[0, 1, 2].map((at) => ((seen[one] as number[])[at] as number) - ((seen[other] as number[])[at] as number))) > (name === "all" ? 0.15 : 0.11), `${name}: ${one} ${other}`);
        }
      }
    }
  });
}
