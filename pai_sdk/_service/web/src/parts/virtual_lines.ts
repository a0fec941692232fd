// Which lines of a very long list are on the screen. The list scrolls over an empty box as high as all its lines, or
// as browsers bear: beyond that, the scroll bar moves by fractions of the list, and wheel and keys by lines.
const MOST_PIXELS = 8_000_000; // Chromium draws up to 33 million, others 16 million

export interface Sizes {
  total: number; // of lines
  height: number; // of what is visible, in pixels
  line: number; // height of a line
}

/** The height of the empty box. */
export function boxHeight({ total, line }: Sizes): number {
  return Math.min(total * line, MOST_PIXELS);
}

/** Whether a pixel of the scroll bar is more than a pixel of the list. */
export function isShortened({ total, line }: Sizes): boolean {
  return total * line > MOST_PIXELS;
}

/** The greatest number of the line at the top, with its fraction. */
export function mostTop({ total, height, line }: Sizes): number {
  return Math.max(0, total - height / line);
}

/** The line at the top where the browser has scrolled to. */
export function topOf(scrolled: number, sizes: Sizes): number {
  const room = boxHeight(sizes) - sizes.height;
  return room <= 0 ? 0 : Math.min(1, Math.max(0, scrolled / room)) * mostTop(sizes);
}

/** Where the browser scrolls to for a line at the top. */
export function scrolledTo(top: number, sizes: Sizes): number {
  const most = mostTop(sizes);
  return most === 0 ? 0 : (top / most) * (boxHeight(sizes) - sizes.height);
}

/** Lines as they are written in the address, counted from 1: `120`, `120-140`. */
export function readRange(text: string): [number, number] | undefined {
  const found = /^(\d{1,12})(?:-(\d{1,12}))?$/.exec(text.trim());
  if (!found) return undefined;
  const [one, other] = [Number(found[1]) - 1, Number(found[2] ?? found[1]) - 1];
  return one < 0 || other < 0 ? undefined : [Math.min(one, other), Math.max(one, other)];
}

export function writeRange([first, last]: readonly [number, number]): string {
  return first === last ? `${first + 1}` : `${first + 1}-${last + 1}`;
}
