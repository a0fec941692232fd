// A chart as an SVG file: title, axes, curves and legend, without a script; it can be opened by any program.
import { drawBand, drawLine, hasBands, oddOutline, oddRanges, ODD_SPACE, placer, type Curve, type Pen, type Range, type View } from "./curve_data.ts";
import { written } from "./direction.ts";

export interface PictureParts {
  title: string;
  curves: readonly Curve[];
  x: Range;
  y: Range;
  logX: boolean;
  logY: boolean;
  ticksX: readonly (readonly [number, string])[];
  ticksY: readonly (readonly [number, string])[];
}

interface Looks {
  width: number;
  height: number; // of the drawing area
  back: string;
  text: string;
  grid: string;
  bad: string;
  colourOf: (colour: string) => string; // as other programs read it
}

const LEFT = 80;
const TOP = 44;
const RIGHT = 16;
const LEGEND_LINE = 20;
const MOST_NAMES = 40;
const NAME_WIDTH = 240;

export function svgOf(parts: PictureParts, looks: Looks): string {
  const { curves } = parts;
  const view: View = { ...parts, left: LEFT, top: TOP, width: looks.width - LEFT - RIGHT, height: looks.height };
  const { ofX, ofY } = placer(view);
  const [right, bottom] = [LEFT + view.width, TOP + view.height];
  const columns = Math.max(1, Math.floor((looks.width - LEFT) / NAME_WIDTH));
  const named = curves.slice(0, MOST_NAMES);
  const rows = Math.ceil(named.length / columns) + (curves.length > named.length ? 1 : 0);
  const height = bottom + 40 + rows * LEGEND_LINE;
  const text = (x: number, y: number, said: string, anchor = "start", size = 12): string =>
    `<text x="${round(x)}" y="${round(y)}" text-anchor="${anchor}" font-size="${size}" fill="${looks.text}">${escaped(said)}</text>`;
  const line = (x: number, y: number, x2: number, y2: number): string =>
    `<path d="M${round(x)} ${round(y)}L${round(x2)} ${round(y2)}" stroke="${looks.grid}"/>`;
  const out = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${looks.width}" height="${height}" viewBox="0 0 ${looks.width} ${height}" font-family="system-ui, sans-serif">`,
    `<title>${escaped(parts.title)}</title><rect width="100%" height="100%" fill="${looks.back}"/>`,
    text(16, 26, parts.title, "start", 16),
    `<clipPath id="area"><rect x="${LEFT}" y="${TOP}" width="${view.width}" height="${view.height}"/></clipPath>`,
  ];
  for (const [at, said] of parts.ticksX) out.push(line(ofX(at), TOP, ofX(at), bottom), ...said.split("\n").map((part, index) => text(ofX(at), bottom + 18 + 13 * index, part, "middle")));
  for (const [at, said] of parts.ticksY) out.push(line(LEFT, ofY(at), right, ofY(at)), text(LEFT - 6, ofY(at) + 4, said, "end"));
  out.push('<g clip-path="url(#area)" fill="none" stroke-width="1.5" stroke-linejoin="round" stroke-linecap="round">');
  const withBand = hasBands(curves);
  for (const curve of curves) {
    const colour = looks.colourOf(curve.colour);
    const band = withBand ? pathOf((pen) => drawBand(pen, curve, view)) : "";
    if (band) out.push(`<path d="${band}" fill="${colour}" fill-opacity=".18"/>`);
    out.push(`<path d="${pathOf((pen) => drawLine(pen, curve, view, withBand))}" stroke="${colour}"><title>${escaped(curve.label)}</title></path>`);
  }
  for (const [kind, edge, up] of [["nan", bottom, -1], ["inf", TOP, 1]] as const) {
    for (const { from, to, colour } of oddRanges(curves, kind, { ofX, within: parts.x, space: ODD_SPACE })) {
      out.push(`<path d="M${oddOutline(from, to, edge, up).map(([x, y]) => `${round(x)} ${round(y)}`).join("L")}z" fill="${colour ? looks.colourOf(colour) : looks.bad}"/>`);
    }
  }
  out.push("</g>");
  named.forEach((curve, at) => {
    const [x, y] = [LEFT + (at % columns) * NAME_WIDTH, bottom + 52 + Math.floor(at / columns) * LEGEND_LINE];
    out.push(`<path d="M${x} ${y - 4}h18" stroke="${looks.colourOf(curve.colour)}" stroke-width="3"/>`, text(x + 24, y, shortened(curve.label)));
  });
  if (curves.length > named.length) out.push(text(LEFT, height - 8, `… ${curves.length - named.length}`));
  return [...out, "</svg>"].join("\n");
}

function pathOf(draw: (pen: Pen) => void): string {
  const out: string[] = [];
  draw({ moveTo: (x, y) => out.push(`M${round(x)} ${round(y)}`), lineTo: (x, y) => out.push(`L${round(x)} ${round(y)}`) });
  return out.join("");
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}

function shortened(text: string): string {
  return text.length > 30 ? `${text.slice(0, 29)}…` : text;
}

function escaped(text: string): string {
  // Characters that no XML file may have are left out.
  const clean = written(text).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "");
  return clean.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");
}
