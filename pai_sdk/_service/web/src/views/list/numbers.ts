// The numbers of a column, all with as many decimals, so that they can be compared by their digits.
import { number } from "../../format.ts";

const USUAL_DIGITS = 5; // of the largest number
const MOST_DIGITS = 6; // where small ones need more decimals
const LEAST_DIGITS = 4; // that small ones should have
const MOST_WHOLE = 1e9; // whole numbers are written in full below
const MOST_TINY = 0.1; // part of the numbers that may be too small for the decimals of the others

/** How the numbers of a column are written. */
export function formatOf(values: Iterable<number>): (value: number) => string {
  const sizes = [...values].map(Math.abs).filter((size) => size > 0 && size < Infinity);
  const most = Math.max(0, ...sizes);
  if (most < MOST_WHOLE && sizes.every(Number.isInteger)) return (value) => (Number.isFinite(value) ? String(value).replace("-", "−") : number(value));
  const room = MOST_DIGITS - 1 - exponentOf(most); // decimals with all the digits that are allowed
  const wanted = LEAST_DIGITS - 1 - exponentOf(Math.min(...sizes));
  const decimals = Math.min(decimalsIn(sizes, room), Math.max(room - MOST_DIGITS + USUAL_DIGITS, Math.min(wanted, room)));
  const isTiny = (size: number): boolean => size !== 0 && size < 0.5 * 10 ** -decimals;
  const isWide = most >= 1e6 || decimals > 9 || sizes.filter(isTiny).length > MOST_TINY * sizes.length;
  if (isWide) return (value) => (value && Number.isFinite(value) ? value.toExponential(LEAST_DIGITS - 1).replace(/^-/, "−").replace("e+", "e") : number(value));
  return (value) => (Number.isFinite(value) && !isTiny(Math.abs(value)) ? value.toFixed(Math.max(0, decimals)).replace("-", "−") : number(value));
}

function exponentOf(size: number): number {
  return size > 0 ? Math.floor(Math.log10(size)) : 0;
}

/** The decimals that the numbers have, when they are rounded to so many. */
function decimalsIn(sizes: readonly number[], most: number): number {
  let decimals = 0;
  for (const size of sizes) {
    while (decimals < most && Number(size.toFixed(Math.min(100, decimals))) !== Number(size.toFixed(Math.min(100, most)))) decimals += 1;
    if (decimals >= most) break;
  }
  return decimals;
}
