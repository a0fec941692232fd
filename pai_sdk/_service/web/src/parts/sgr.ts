// Colours of terminals (SGR sequences) in a line of a log, as spans of text with their style.
//
// Each line begins without a style, because lines are read in any order. Other escape sequences are dropped. A span
// knows where it begins in the line as it was written: hits of a search are places in that.
export interface Style {
  text?: Colour;
  back?: Colour;
  bold?: boolean;
  faint?: boolean;
  italic?: boolean;
  underline?: boolean;
  strike?: boolean;
  inverse?: boolean;
}
interface Span {
  text: string;
  at: number;
  style: Style;
}
type Colour = readonly [red: number, green: number, blue: number];

// A colour sequence; any other control sequence, title of the window or escape of one or two characters.
const SEQUENCE = /\x1b\[([\d;:]*)m|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-Z\\^-~]?/g;
const NONE: Style = {};
const BASE: readonly Colour[] = [
  [0, 0, 0], [205, 49, 49], [13, 160, 90], [190, 150, 10], [36, 114, 200], [188, 63, 188], [17, 150, 190], [204, 204, 204],
  [102, 102, 102], [241, 76, 76], [35, 190, 120], [225, 190, 40], [59, 142, 234], [214, 112, 214], [41, 184, 219], [255, 255, 255],
];
// The backgrounds of chosen lines, which have the least contrast to texts.
const CHOSEN_LIGHT: Colour = [227, 239, 252];
const CHOSEN_DARK: Colour = [22, 48, 74];
const STEPS = [0, 95, 135, 175, 215, 255];

/** The spans of a line. */
export function readSpans(line: string): Span[] {
  const spans: Span[] = [];
  let [style, at] = [NONE, 0];
  for (const found of line.matchAll(SEQUENCE)) {
    if (found.index > at) spans.push({ text: line.slice(at, found.index), at, style });
    if (found[1] !== undefined) style = styleAfter(style, found[1]);
    at = found.index + found[0].length;
  }
  if (at < line.length || spans.length === 0) spans.push({ text: line.slice(at), at, style });
  return spans;
}

/** The text of a line without escape sequences. */
export function plainText(line: string): string {
  return line.replace(SEQUENCE, "");
}

function styleAfter(before: Style, parameters: string): Style {
  const codes = parameters.split(/[;:]/).map(Number);
  let style: Style = { ...before };
  for (let at = 0; at < codes.length; at++) {
    const code = codes[at] as number;
    if (code === 0) style = {};
    else if (code === 1) style.bold = true;
    else if (code === 2) style.faint = true;
    else if (code === 3) style.italic = true;
    else if (code === 4) style.underline = true;
    else if (code === 7) style.inverse = true;
    else if (code === 9) style.strike = true;
    else if (code === 22) (delete style.bold, delete style.faint);
    else if (code === 23) delete style.italic;
    else if (code === 24) delete style.underline;
    else if (code === 27) delete style.inverse;
    else if (code === 29) delete style.strike;
    else if (code === 39) delete style.text;
    else if (code === 49) delete style.back;
    else if (code === 38 || code === 48) {
      const [colour, used] = extended(codes.slice(at + 1), parameters.includes(":"));
      if (colour) style[code === 38 ? "text" : "back"] = colour;
      at += used;
    } else if (code >= 30 && code < 38) style.text = BASE[code - 30] as Colour;
    else if (code >= 40 && code < 48) style.back = BASE[code - 40] as Colour;
    else if (code >= 90 && code < 98) style.text = BASE[code - 82] as Colour;
    else if (code >= 100 && code < 108) style.back = BASE[code - 92] as Colour;
  }
  return style;
}

// `5;N` is one of 256 colours, `2;R;G;B` any colour; with colons, a number for the colour space may come before R.
function extended(codes: readonly number[], hasColons: boolean): [Colour | undefined, number] {
  if (codes[0] === 5) return [ofPalette(codes[1] ?? -1), 2];
  if (codes[0] !== 2) return [undefined, 0];
  const skipped = hasColons && codes.length > 4 ? 2 : 1;
  const [red = 0, green = 0, blue = 0] = codes.slice(skipped, skipped + 3).map((value) => Math.min(255, value));
  return [[red, green, blue], skipped + 3];
}

function ofPalette(number: number): Colour | undefined {
  if (!(number >= 0 && number < 256)) return undefined;
  if (number < 16) return BASE[number];
  if (number >= 232) return [8 + (number - 232) * 10, 8 + (number - 232) * 10, 8 + (number - 232) * 10];
  const step = (size: number): number => STEPS[Math.floor((number - 16) / size) % 6] as number;
  return [step(36), step(6), step(1)];
}

/** The colours of a style for the browser: readable on a light and on a dark page. */
export function coloursOf(style: Style): { color?: string; background?: string } {
  if (style.inverse && !style.text && !style.back) return { color: "var(--back)", background: "var(--text)" };
  const [text, back] = style.inverse ? [style.back, style.text] : [style.text, style.back];
  if (back) {
    const black: Colour = [0, 0, 0];
    const white: Colour = [255, 255, 255];
    const best = contrast(black, back) > contrast(white, back) ? black : white;
    return { color: css(text && contrast(text, back) >= 4.5 ? text : best), background: css(back) };
  }
  if (style.inverse) return { color: "var(--back)", background: "var(--text)" };
  if (!text) return {};
  return { color: `light-dark(${css(readable(text, CHOSEN_LIGHT, 0))}, ${css(readable(text, CHOSEN_DARK, 255))})` };
}

/** A colour, moved towards black (0) or white (255) until it has contrast to what is behind it. */
export function readable(colour: Colour, behind: Colour, towards: number): Colour {
  for (let part = 0; part < 1; part += 0.05) {
    const moved = colour.map((value) => Math.round(value + (towards - value) * part)) as unknown as Colour;
    if (contrast(moved, behind) >= 4.6) return moved;
  }
  return [towards, towards, towards];
}

/** The contrast of two colours as accessibility rules count it: 1 to 21. */
export function contrast(one: Colour, other: Colour): number {
  const [low, high] = [light(one), light(other)].sort((a, b) => a - b) as [number, number];
  return (high + 0.05) / (low + 0.05);
}

function light(colour: Colour): number {
  const [red, green, blue] = colour.map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function css(colour: Colour): string {
  return `rgb(${colour.join(" ")})`;
}
