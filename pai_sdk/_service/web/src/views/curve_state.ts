// What the address says about the charts.
import { computed, type ReadonlySignal } from "@preact/signals";
import { change, field } from "../address.ts";
import { shown } from "../runs.ts";
import type { Range } from "../parts/curve_data.ts";
import { BANDS, rounded, X_AXES, type Question } from "./compared.ts";

const BUCKETS = 250;
const LARGE_BUCKETS = 500; // of an enlarged chart with not too many curves
const MANY = 200;
const FEW = 50; // runs; then all charts have the last values of buckets, and double precision

export const tag = field("tag"); // the metric whose chart is enlarged
export const words = field("tags"); // of metrics that are shown
const x = field("x");
const band = field("band");
const group = field("group");
export const xAxis = computed(() => X_AXES.find((one) => one === x.value) ?? "step");
const wantsLogX = flag("logx");
export const isLogX = computed(() => wantsLogX.value && xAxis.value !== "wall");
export const isLogY = flag("logy");
export const smooth = computed(() => Math.min(0.999, Math.max(0, numberOf("smooth") ?? 0)));
export const groupBy = computed(() => group.value.split(",").map((key) => key.trim()).filter(Boolean));
export const bandOf = computed(() => BANDS.find((one) => one === band.value) ?? "");
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
