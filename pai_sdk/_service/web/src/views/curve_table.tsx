// The curves of a chart in numbers, beside their picture.
import { useComputed, useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { linkTo } from "../address.ts";
import { count, number } from "../format.ts";
import { cursor, highlighted, textOf, type Curve, type Range } from "../parts/chart.tsx";
import { extremes, pointAt } from "../parts/curve_data.ts";
import { pick } from "../runs.ts";
import { chinese, t } from "../words.ts";

const MOST_ROWS = 50;
const MORE_ROWS = 200;

type Order = "label" | "last" | "min" | "max" | "at";

/** Last, least and largest value of each curve in the view, and its value at the cursor. */
export function CurveTable({ curves, view, xText }: { curves: readonly Curve[]; view: Range; xText: (x: number) => string }) {
  const order = useSignal<Order>("last");
  const isDown = useSignal(false);
  const most = useSignal(MOST_ROWS);
  const isByCursor = order.value === "at";
  const place = useComputed(() => cursor.value?.x).value;
  const at = (curve: Curve): number => {
    const point = place === undefined ? undefined : pointAt(curve, place);
    return point ? (Number.isNaN(point.value) ? point.low : point.value) : NaN;
  };
  const known = useMemo(() => curves.map((curve) => ({ curve, label: curve.label, ...extremes(curve, view) })), [curves, view[0], view[1]]);
  const rows = known.map((row) => ({ ...row, at: isByCursor ? at(row.curve) : NaN }));
  rows.sort((one, other) => {
    const [a, b] = [one[order.value], other[order.value]];
    const sign = isDown.value ? -1 : 1;
    if (typeof a === "string" || typeof b === "string") return sign * String(a).localeCompare(String(b), undefined, { numeric: true });
    const [isNone, isOtherNone] = [a === undefined || Number.isNaN(a), b === undefined || Number.isNaN(b)];
    return isNone || isOtherNone ? Number(isNone) - Number(isOtherNone) : sign * ((a as number) - (b as number));
  });
  const titles: Record<Order, string> = {
    label: t("Curve"),
    last: t("Last"),
    min: t("Minimum"),
    max: t("Maximum"),
    at: place === undefined ? t("At the cursor") : t("At {x}", { x: xText(place) }),
  };
  const sortBy = (name: Order): void => {
    isDown.value = order.value === name ? !isDown.value : name === "max";
    order.value = name;
  };
  return (
    <div class="scroll curve-table" tabIndex={0} role="region" aria-label={t("Values of the curves")}>
      <table>
        <thead>
          <tr>
            {(Object.keys(titles) as Order[]).map((name) => (
              <th key={name} class={name === "label" ? "" : "number"} aria-sort={order.value === name ? (isDown.value ? "descending" : "ascending") : "none"}>
                <button class="plain" onClick={() => sortBy(name)}>
                  {titles[name]} {order.value === name ? (isDown.value ? "↓" : "↑") : ""}
                </button>
              </th>
            ))}
          </tr>
        </thead>
        <tbody onMouseLeave={() => (highlighted.value = "")}>
          {rows.slice(0, most.value).map(({ curve, last, min, max }) => {
            const point = place === undefined ? undefined : pointAt(curve, place);
            return (
              <tr key={curve.name} class={highlighted.value === curve.name ? "hot" : ""} onMouseEnter={() => (highlighted.value = curve.name)}>
                <td><CurveName curve={curve} /></td>
                {[last, min, max].map((value, column) => <td key={column} class="number">{value === undefined ? "–" : number(value)}</td>)}
                <td class="number">{point ? textOf(point, curve) : "–"}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {rows.length > most.value && (
        <button onClick={() => (most.value += MORE_ROWS)}>{t("{n} more", { n: count(rows.length - most.value) })}</button>
      )}
    </div>
  );
}

function CurveName({ curve }: { curve: Curve }) {
  const isGroup = Boolean(curve.runs);
  return (
    <span class="curve-name">
      <i class="swatch" style={{ background: curve.colour }} />
      {isGroup ? (
        <button class="plain" title={t("Show only the {runs} of this group")} onClick={() => pick(curve.runs ?? [])}>{curve.label}</button>
      ) : (
        <a href={linkTo({ run: curve.name })}>{curve.label}</a>
      )}
    </span>
  );
}

chinese({
  "Curve": "曲线",
  "Last": "最新",
  "Minimum": "最小值",
  "Maximum": "最大值",
  "At the cursor": "光标处",
  "At {x}": "{x} 处",
  "Values of the curves": "曲线数值",
  "{n} more": "另有 {n} 个",
  "Show only the {runs} of this group": "只显示该组的{run}",
});
