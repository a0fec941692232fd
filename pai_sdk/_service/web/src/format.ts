// Numbers, times and sizes as people read them.
import { t, chinese } from "./words.ts";

/** A number with five significant digits; a word for what is none. */
export function number(value: number | null | undefined, digits = 5): string {
  if (value === null || value === undefined) return "";
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  const text = size !== 0 && (size >= 1e6 || size < 1e-4) ? value.toExponential(digits - 2).replace(/\.?0+e/, "e") : String(Number(value.toPrecision(digits)));
  return text.replace("-", "−").replace("e−", "e-").replace("e+", "e");
}

/** A whole number with separators. */
export function count(value: number): string {
  return String(value).replace(/\B(?=(\d{3})+$)/g, ","); // the browser's own way loads the data of all locales first
}

/** A length of time: `42 s`, `3 min 5 s`, `2 h 10 min`. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return t("{n} s", { n: whole });
  if (whole < 3600) return t("{m} min {n} s", { m: Math.floor(whole / 60), n: whole % 60 });
  if (whole < 86400) return t("{h} h {m} min", { h: Math.floor(whole / 3600), m: Math.floor((whole % 3600) / 60) });
  return t("{d} d {h} h", { d: Math.floor(whole / 86400), h: Math.floor((whole % 86400) / 3600) });
}

/** How long ago a moment was, in one unit. */
export function age(time: number | null | undefined, now = Date.now() / 1000): string {
  if (!time) return "";
  const passed = Math.max(0, now - time);
  if (passed < 120) return t("{n} s ago", { n: Math.round(passed) });
  if (passed < 7200) return t("{n} min ago", { n: Math.round(passed / 60) });
  if (passed < 172800) return t("{n} h ago", { n: Math.round(passed / 3600) });
  return t("{n} d ago", { n: Math.round(passed / 86400) });
}

/** A moment in the zone of the browser: `2026-11-22 14:03:07`. */
export function moment(time: number | null | undefined): string {
  if (!time) return "";
  const date = new Date(time * 1000);
  const two = (value: number): string => String(value).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** A moment with its zone: `2026-11-22 14:03:07 UTC+8`. */
export function zoned(time: number | null | undefined): string {
  return time ? `${moment(time)} ${zone(time)}` : "";
}

/** The zone of the browser at a moment: `UTC+5:30`. */
export function zone(time: number): string {
  const minutes = -new Date(time * 1000).getTimezoneOffset();
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  return minutes === 0 ? "UTC" : `UTC${minutes < 0 ? "−" : "+"}${hours}${rest ? `:${String(rest).padStart(2, "0")}` : ""}`;
}

/** A size in bytes: `3.2 MB`. */
export function bytes(size: number | null | undefined): string {
  if (size === null || size === undefined) return "";
  let [value, unit] = [size, "B"];
  for (const next of ["kB", "MB", "GB", "TB"]) {
    if (value < 1000) break;
    [value, unit] = [value / 1000, next];
  }
  return `${value < 10 && unit !== "B" ? value.toFixed(1) : Math.round(value)} ${unit}`;
}

chinese({
  "{n} s": "{n} 秒",
  "{m} min {n} s": "{m} 分 {n} 秒",
  "{h} h {m} min": "{h} 小时 {m} 分",
  "{d} d {h} h": "{d} 天 {h} 小时",
  "{n} s ago": "{n} 秒前",
  "{n} min ago": "{n} 分钟前",
  "{n} h ago": "{n} 小时前",
  "{n} d ago": "{n} 天前",
});
