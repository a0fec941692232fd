// A line of a log as it is drawn: progress bars folded to their last state, colours, marked hits, no control characters.
import { readSpans, type Style } from "../../parts/sgr.ts";

interface Piece {
  text: string;
  style: Style;
  isHit: boolean;
}
interface Drawn {
  pieces: Piece[];
  states: number; // of a progress bar that has drawn over itself in this line
  cut: number; // characters that are not drawn
  kind: "" | "bad-line" | "warn-line";
}
export type Range = readonly [begin: number, end: number];

const MOST_CHARACTERS = 2000;
const BAD = /\b(?:ERROR|FATAL|CRITICAL|Traceback|[A-Z]\w*(?:Error|Exception):)|\bpanic:|\bKilled\b/;
const WARN = /\bWARN(?:ING)?\b|[A-Z]\w*Warning:/;
// Characters that draw nothing, or change the order of the others.
const UNSEEN = /[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;

/** The states that a progress bar had in a line, from the first to the last. */
export function statesOf(text: string): string[] {
  const states = text.split("\r").filter((state) => state !== "");
  return states.length > 0 ? states : [""];
}

/** A line as it is drawn. `hits` are places in `text`. */
export function drawn(text: string, hits: readonly Range[] = []): Drawn {
  const states = statesOf(text);
  const whole = states[states.length - 1] as string;
  const begin = text.lastIndexOf(whole);
  const line = whole.length > MOST_CHARACTERS + 200 ? whole.slice(0, MOST_CHARACTERS) : whole;
  const pieces: Piece[] = [];
  for (const span of readSpans(line)) {
    for (const [part, isHit] of divided(span.text, begin + span.at, hits)) pieces.push({ text: visible(part), style: span.style, isHit });
  }
  const kind = BAD.test(line) ? "bad-line" : WARN.test(line) ? "warn-line" : "";
  return { pieces, states: states.length, cut: whole.length - line.length, kind };
}

/** A text in which control characters are symbols. */
export function visible(text: string): string {
  return text.replace(UNSEEN, (sign) => {
    const code = sign.charCodeAt(0);
    if (code < 32) return String.fromCharCode(0x2400 + code);
    return code === 127 ? "␡" : "�";
  });
}

/** Where a text is in a line. */
export function placesOf(line: string, wanted: string, ignoresCase: boolean): Range[] {
  const [within, what] = ignoresCase ? [line.toLowerCase(), wanted.toLowerCase()] : [line, wanted];
  const places: Range[] = [];
  for (let at = within.indexOf(what); at >= 0 && what && places.length < 1000; at = within.indexOf(what, at + what.length)) {
    places.push([at, at + what.length]);
  }
  return places;
}

/** A place that the service has counted in characters, counted as the browser does: some characters are two for it. */
export function placeOf(text: string, characters: number): number {
  let at = 0;
  for (let left = characters; left > 0 && at < text.length; left--) at += (text.codePointAt(at) as number) > 0xffff ? 2 : 1;
  return at;
}

function* divided(text: string, at: number, hits: readonly Range[]): Generator<[string, boolean]> {
  let done = 0;
  for (const [begin, end] of hits) {
    const [from, to] = [Math.max(done, begin - at), Math.min(text.length, end - at)];
    if (to <= from) continue;
    if (from > done) yield [text.slice(done, from), false];
    yield [text.slice(from, to), true];
    done = to;
  }
  if (done < text.length) yield [text.slice(done), false];
}
