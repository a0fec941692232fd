// Where an axis has its lines, and what they are called.
import { moment, number } from "../format.ts";
import type { Range } from "./curve_data.ts";

export type Tick = readonly [place: number, text: string];

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const SECONDS = [1, 2, 5, 10, 15, 30, ...[1, 2, 5, 10, 15, 30].map((n) => n * MINUTE), ...[1, 2, 3, 6, 12].map((n) => n * HOUR), ...[1, 2, 7, 14, 28].map((n) => n * DAY)];

/** Round numbers, at most so many. */
export function linearTicks(range: Range, most: number): Tick[] {
  const digits = (step: number): number => Math.max(1, Math.ceil(Math.log10(Math.max(Math.abs(range[0]), Math.abs(range[1])) / step) + 1));
  const step = roundStep((range[1] - range[0]) / Math.max(1, most));
  return multiples(range, step).map((value) => [value, number(Number(value.toPrecision(12)), Math.min(12, digits(step) + 1))]);
}

/** Powers of ten, with 2 and 5 between them where there is room. */
export function logTicks(range: Range, most: number): Tick[] {
  const [low, high] = [Math.log10(range[0]), Math.log10(range[1])];
  if (high - low < 1) return linearTicks(range, most).filter(([value]) => value > 0);
  const digits = high - low < most / 3 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil((high - low) / Math.max(1, most)));
  const found: Tick[] = [];
  for (let power = Math.floor(low); power <= high; power++) {
    if (power % every !== 0) continue;
    for (const digit of digits) {
      const value = Number(`${digit}e${power}`);
      if (value >= range[0] && value <= range[1]) found.push([value, number(value)]);
    }
  }
  return found;
}

/** Lengths of time in seconds: `90 s`, `1:30 h`. */
export function durationTicks(range: Range, most: number): Tick[] {
  const step = secondsStep(range, most);
  if (step < 1) return linearTicks(range, most).map(([value, text]) => [value, `${text} s`]);
  return multiples(range, step).map((value) => [value, durationText(value, step)]);
}

/** Moments in the zone of the browser. */
export function timeTicks(range: Range, most: number): Tick[] {
  const step = Math.max(1, secondsStep(range, most));
  const zone = new Date(range[0] * 1000).getTimezoneOffset() * MINUTE;
  let day = "";
  return multiples([range[0] - zone, range[1] - zone], step).map((local) => {
    const text = moment(local + zone);
    if (step < MINUTE) return [local + zone, text.slice(11)]; // no room for a day; the text at the cursor has it
    const isNewDay = text.slice(5, 10) !== day;
    day = text.slice(5, 10);
    return [local + zone, isNewDay ? text.slice(5, step >= DAY ? 10 : 16) : text.slice(11, 16)];
  });
}

function durationText(value: number, step: number): string {
  if (value === 0) return "0";
  const sign = value < 0 ? "−" : "";
  const size = Math.abs(value);
  if (step >= DAY) return `${sign}${Math.round(size / DAY)} d`;
  const two = (part: number): string => String(Math.floor(part)).padStart(2, "0");
  if (size >= HOUR) return `${sign}${Math.floor(size / HOUR)}:${two((size % HOUR) / MINUTE)}${step < MINUTE ? `:${two(size % MINUTE)}` : ""} h`;
  return size < MINUTE || step < MINUTE && size < 2 * MINUTE ? `${sign}${size} s` : `${sign}${Math.floor(size / MINUTE)}${size % MINUTE ? `:${two(size % MINUTE)}` : ""} min`;
}

function secondsStep([from, to]: Range, most: number): number {
  const least = (to - from) / Math.max(1, most);
  if (least < 0.5) return 0;
  return SECONDS.find((step) => step >= least) ?? roundStep(least / DAY) * DAY;
}

function roundStep(least: number): number {
  const power = 10 ** Math.floor(Math.log10(least));
  return (([1, 2, 5, 10].find((digit) => digit * power >= least * 0.999) ?? 10) * power) || 1;
}

function multiples([from, to]: Range, step: number): number[] {
  const found: number[] = [];
  for (let at = Math.ceil(from / step - 1e-9); at * step <= to + step * 1e-9 && found.length < 50; at++) found.push(Number((at * step).toPrecision(15)) + 0);
  return found;
}
