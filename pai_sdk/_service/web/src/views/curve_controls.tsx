// The controls above the charts; what they say is in the address.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { change } from "../address.ts";
import { list, shown } from "../runs.ts";
import { chinese, t } from "../words.ts";
import { BANDS, METRIC, X_AXES } from "./compared.ts";
import { bandOf, followWidth, groupBy, isLogX, isLogY, isTrimmed, isZoomed, limit, limitsOf, smooth, tag, words, xAxis, zoomTo } from "./curve_state.ts";

const TYPING_MS = 250;
const MOST_METRICS = 300; // to choose from

export function CurveControls({ range }: { range: readonly [number, number] | undefined }) {
  const axes = { step: t("Step"), relative_step: t("Steps since the first"), relative_time: t("Time since the first point"), wall: t("Time of day") };
  const bands = { "": t("No band"), std: t("Standard deviation"), range: t("Min to max"), quantile: t("Median, middle half") };
  const tags = xMetrics();
  const limits = limitsOf(tag.value);
  const width = range ? range[1] - range[0] : 0;
  const by = (factor: number): void => {
    if (!range) return;
    const middle = (range[0] + range[1]) / 2;
    zoomTo([middle - (width / 2) * factor, middle + (width / 2) * factor]);
  };
  return (
    <div class="curve-controls" role="group" aria-label={t("What the charts show")}>
      <label>
        {t("Metrics")}
        <Typed value={words.value} label={t("Metrics")} hint={t("part of a name")} onValue={(value) => change({ tags: value }, { replace: true })} />
      </label>
      <label>
        {t("x axis")}
        <select value={xAxis.value} onChange={({ currentTarget: { value } }) => change({ x: value === "step" ? "" : value, from: "", to: "", follow: "" })}>
          {X_AXES.map((name) => <option key={name} value={name}>{axes[name]}</option>)}
          <optgroup label={t("Metrics")}>{tags.map((name) => <option key={name} value={METRIC + name}>{name}</option>)}</optgroup>
        </select>
      </label>
      <label title={xAxis.value === "wall" ? t("A time of day has no logarithm") : undefined}>
        <input type="checkbox" disabled={xAxis.value === "wall"} checked={isLogX.value} onChange={({ currentTarget: { checked } }) => change({ logx: checked ? "1" : "" })} />
        {t("log x")}
      </label>
      <label>
        <input type="checkbox" checked={isLogY.value} onChange={({ currentTarget: { checked } }) => change({ logy: checked ? "1" : "" })} />
        {t("log y")}
      </label>
      <label title={t("The y axis leaves out the lowest and the highest 1 % of the values")}>
        <input type="checkbox" checked={isTrimmed.value} onChange={({ currentTarget: { checked } }) => change({ trim: checked ? "1" : "" })} />
        {t("Ignore outliers")}
      </label>
      <span class="limits" role="group" aria-label={tag.value ? t("Limits of y, in this chart") : t("Limits of y, in all charts")}>
        y
        {(["min", "max"] as const).map((which) => (
          <input key={which} class="short" inputMode="decimal" value={limits[which] ?? ""} aria-label={which === "min" ? t("Min y") : t("Max y")} placeholder={which === "min" ? t("Min") : t("Max")} onChange={({ currentTarget }) => limit(which, currentTarget.value)} />
        ))}
      </span>
      <Smoothing />
      <label>
        {t("Group by")}
        <Typed value={groupBy.value.join(",")} label={t("Group by")} hint="hparams.lr" list="group-keys" onValue={(value) => change({ group: value, hide: "" }, { replace: true })} />
        <datalist id="group-keys">{groupKeys().map((key) => <option key={key} value={key} />)}</datalist>
      </label>
      {groupBy.value.length > 0 && (
        <label>
          {t("Band")}
          <select value={bandOf.value} onChange={({ currentTarget: { value } }) => change({ band: value })}>
            {BANDS.map((name) => <option key={name} value={name}>{bands[name]}</option>)}
          </select>
        </label>
      )}
      <span class="zoom-buttons" role="group" aria-label={t("Zoom")}>
        <button title={t("Zoom in")} aria-label={t("Zoom in")} disabled={!range} onClick={() => by(0.5)}>+</button>
        <button title={t("Zoom out")} aria-label={t("Zoom out")} disabled={!isZoomed.value} onClick={() => by(2)}>−</button>
        <button
          aria-pressed={followWidth.value > 0}
          title={t("Keep the newest points in view, with the width of the zoom")}
          disabled={!isZoomed.value}
          onClick={() => change({ follow: followWidth.value > 0 ? "" : String(Number(width.toPrecision(4))), from: "", to: "" })}
        >
          {t("Follow")}
        </button>
        {isZoomed.value && <button onClick={() => zoomTo(undefined)}>{t("Show all of x")}</button>}
      </span>
    </div>
  );
}

function Smoothing() {
  const wanted = useSignal(smooth.value);
  useEffect(() => {
    wanted.value = smooth.value;
  }, [smooth.value]);
  useEffect(() => {
    if (wanted.value === smooth.value) return undefined;
    const typing = setTimeout(() => change({ smooth: wanted.value ? String(wanted.value) : "" }, { replace: true }), TYPING_MS);
    return () => clearTimeout(typing);
  }, [wanted.value]);
  const set = (text: string): void => {
    wanted.value = Math.min(0.999, Math.max(0, Number(text) || 0));
  };
  return (
    <label title={t("The service smooths all points, before it makes buckets of them")}>
      {t("Smoothing")}
      <input type="range" min="0" max="0.999" step="0.001" value={wanted.value} aria-label={t("Smoothing")} onInput={({ currentTarget }) => set(currentTarget.value)} />
      <input type="number" class="short" min="0" max="0.999" step="0.01" value={wanted.value} aria-label={t("Smoothing as a number")} onInput={({ currentTarget }) => set(currentTarget.value)} />
    </label>
  );
}

// A text that is used when the typing has stopped.
function Typed({ value, label, hint, list: keys, onValue }: { value: string; label: string; hint: string; list?: string; onValue: (value: string) => void }) {
  const typed = useSignal(value);
  useEffect(() => {
    typed.value = value;
  }, [value]);
  useEffect(() => {
    if (typed.value === value) return undefined;
    const typing = setTimeout(() => onValue(typed.value), TYPING_MS);
    return () => clearTimeout(typing);
  }, [typed.value]);
  return (
    <input type="search" value={typed.value} aria-label={label} placeholder={hint} list={keys} spellcheck={false} onInput={({ currentTarget }) => (typed.value = currentTarget.value)} />
  );
}

/** Metrics that can be the x axis: that one of the address, also if no run has it yet. */
function xMetrics(): string[] {
  const known = (list.value?.tags ?? []).slice(0, MOST_METRICS);
  const own = xAxis.value.startsWith(METRIC) ? xAxis.value.slice(METRIC.length) : "";
  return own && !known.includes(own) ? [own, ...known] : known;
}

/** What the runs can be grouped by: keys that they have. */
function groupKeys(): string[] {
  const found = new Set<string>(list.value ? ["status"] : []);
  for (const { labels = {}, hparams = {} } of shown.value) {
    for (const key of Object.keys(hparams)) found.add(`hparams.${key}`);
    for (const key of Object.keys(labels)) found.add(`labels.${key}`);
  }
  return [...found].sort().slice(0, 200);
}

chinese({
  "Step": "步数",
  "Steps since the first": "相对步数",
  "Time since the first point": "相对时间",
  "Time of day": "时刻",
  "No band": "无区间",
  "Standard deviation": "标准差",
  "Min to max": "最小到最大",
  "Median, middle half": "中位数与中间一半",
  "What the charts show": "图表设置",
  "Metrics": "指标",
  "part of a name": "名称的一部分",
  "x axis": "x 轴",
  "A time of day has no logarithm": "时刻没有对数",
  "log x": "对数 x",
  "log y": "对数 y",
  "Group by": "分组",
  "Band": "区间",
  "Zoom": "缩放",
  "Zoom in": "放大",
  "Zoom out": "缩小",
  "Keep the newest points in view, with the width of the zoom": "按当前缩放宽度始终显示最新的点",
  "Follow": "跟随",
  "Show all of x": "显示整个 x 轴",
  "The service smooths all points, before it makes buckets of them": "服务先平滑所有点，再分桶",
  "Smoothing": "平滑",
  "Ignore outliers": "忽略离群值",
  "The y axis leaves out the lowest and the highest 1 % of the values": "y 轴不含最低和最高 1 % 的值",
  "Limits of y, in this chart": "此图的 y 轴范围",
  "Limits of y, in all charts": "所有图的 y 轴范围",
  "Min y": "y 最小值",
  "Max y": "y 最大值",
  "Smoothing as a number": "平滑系数",
});
