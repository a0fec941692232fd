// What the address says about the charts.
import { computed, signal, type ReadonlySignal } from "@preact/signals";
import { address, change, field } from "../address.ts";
import { markOf } from "../palette.ts";
import { about } from "../place.ts";
import { shown } from "../runs.ts";
import type { Limits, Range } from "../parts/curve_data.ts";
import { BANDS, METRIC, readLimits, rounded, writeLimits, X_AXES, type Question } from "./compared.ts";

const BUCKETS = 250;
const LARGE_BUCKETS = 500; // of an enlarged chart with not too many curves
const MANY = 200;
const FEW = 50; // runs; then all charts have the last values of buckets, and double precision

export const tag = field("tag"); // the metric whose chart is enlarged
export const words = field("tags"); // of metrics that are shown
const x = field("x");
const band = field("band");
const group = field("group");
/** What the x axis has; `metric:TAG` for another metric. */
export const xAxis = computed(() => (x.value.startsWith(METRIC) && x.value !== METRIC ? x.value : (X_AXES.find((one) => one === x.value) ?? "step")));
const wantsLogX = flag("logx");
export const isLogX = computed(() => wantsLogX.value && xAxis.value !== "wall");
export const isLogY = flag("logy");
export const smooth = computed(() => Math.min(0.999, Math.max(0, numberOf("smooth") ?? 0)));
export const groupBy = computed(() => group.value.split(",").map((key) => key.trim()).filter(Boolean));
export const bandOf = computed(() => BANDS.find((one) => one === band.value) ?? "");
/** Whether the y axes leave out the lowest and the highest 1 % of the shown values. */
export const isTrimmed = flag("trim");
const hidden = field("hide");
/** The names of curves that are hidden, or with a `!` before them those that are shown, as short marks. */
export const hiding = computed(() => ({ isOnly: hidden.value.startsWith("!"), marks: new Set(hidden.value.replace("!", "").split(",").filter(Boolean)) }));

export function isHidden(name: string): boolean {
  const { isOnly, marks } = hiding.value;
  return (isOnly || marks.size > 0) && marks.has(markOf(name)) !== isOnly;
}

/** Hides some of all curves; the address has the shorter one of the two lists. */
export function hide(all: readonly string[], off: ReadonlySet<string>): void {
  const on = all.filter((name) => !off.has(name));
  change({ hide: off.size <= on.length ? [...off].map(markOf).join(",") : `!${on.map(markOf).join(",")}` }, { replace: true });
}

/** The limits of the y axis: of one chart, or those of all. */
export function limitsOf(name: string): Limits {
  const { [`y.${name}`]: own, y = "" } = address.value;
  return { ...readLimits(own ?? y), isTrimmed: isTrimmed.value };
}

/** Sets a limit of the y axis: of the enlarged chart, or of all charts. */
export function limit(which: "min" | "max", text: string): void {
  const place = tag.value ? `y.${tag.value}` : "y";
  const value = text.trim() === "" ? undefined : Number(text);
  if (value === undefined || Number.isFinite(value)) change({ [place]: writeLimits({ ...limitsOf(tag.value), [which]: value }) }, { replace: true });
}

const pinned = field("pins");
const keptPins = signal<string | undefined>(undefined); // of this service; read when it is known which one it is
const PINS_KEY = "pai-ui-pins:";
const placeKey = (): string => PINS_KEY + (about.value ? `${about.value.kind}:${about.value.place}` : "");

/** The metrics that stand first: those of the address, or the ones that were pinned before in this browser. */
export const pins = computed(() => (pinned.value || (keptPins.value ?? localStorage.getItem(placeKey()) ?? "")).split(",").filter(Boolean).map(decodeURIComponent));

export function pin(name: string): void {
  keepPins(pins.value.includes(name) ? pins.value.filter((one) => one !== name) : [...pins.value, name]);
  localStorage.setItem(placeKey(), (keptPins.value = pinned.value));
}

/** Writes the pinned metrics to the address. */
export function keepPins(wanted: readonly string[] = pins.value): void {
  change({ pins: wanted.map((one) => one.replace(/[%,]/g, (sign) => encodeURIComponent(sign))).join(",") }, { replace: true });
}

/** The newest part of the x axis is shown, with this width; 0 for not. */
export const followWidth = computed(() => Math.max(0, numberOf("follow") ?? 0));

/** The part of the x axis that was zoomed to; either end may be open. */
export const zoom = computed(() => (followWidth.value > 0 ? {} : { from: numberOf("from"), to: numberOf("to") }));
export const isZoomed = computed(() => followWidth.value > 0 || zoom.value.from !== undefined || zoom.value.to !== undefined);

export const question: ReadonlySignal<Question> = computed(() => {
  const { from, to } = zoom.value;
  const isFew = shown.value.length <= FEW;
  return {
    runs: shown.value.map((run) => run.id),
    x: xAxis.value,
    ...(from === undefined ? {} : { from }),
    ...(to === undefined ? {} : { to }),
    buckets: tag.value && shown.value.length <= MANY ? LARGE_BUCKETS : BUCKETS,
    smooth: smooth.value,
    group_by: groupBy.value,
    ...(bandOf.value && groupBy.value.length > 0 ? { band: bandOf.value } : {}),
    last: isFew || tag.value !== "",
    precision: isFew ? "double" : "single",
  };
});

/** Shows a part of the x axis in all charts; all of it for undefined. */
export function zoomTo(range: Range | undefined): void {
  const [from, to] = range ? rounded(range) : ["", ""];
  change({ from: String(from), to: String(to), follow: "" }, { replace: isZoomed.value && range !== undefined });
}

function flag(name: string): ReadonlySignal<boolean> {
  const wanted = field(name);
  return computed(() => wanted.value === "1");
}

const fields = new Map<string, ReadonlySignal<string>>();

function numberOf(name: string): number | undefined {
  let known = fields.get(name);
  if (!known) fields.set(name, (known = field(name)));
  const value = Number(known.value);
  return known.value !== "" && Number.isFinite(value) ? value : undefined;
}
