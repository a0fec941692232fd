// The runs of the charts, or their groups: to search for, to show and hide, to pick. Of a long list only the rows on the
// screen are in the document.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { colourOf } from "../colours.ts";
import { count } from "../format.ts";
import { highlighted } from "../parts/chart.tsx";
import { pick, picked } from "../runs.ts";
import { chinese, t } from "../words.ts";
import { filteredTags } from "./compared.ts";
import { hide, isHidden } from "./curve_state.ts";

export interface Entry {
  name: string; // of the curve: a run's id, or the name of a group
  label: string;
  runs?: readonly string[] | undefined; // of a group
}

const PHONE = 600; // pixels; on it, charts come before names
const ROW = 28; // pixels
const AROUND = 8; // rows beside those on the screen

export function Legend({ entries }: { entries: readonly Entry[] }) {
  const typed = useSignal("");
  const top = useSignal(0);
  const height = useSignal(800);
  const list = useRef<HTMLUListElement>(null);
  useEffect(() => {
    const sizes = new ResizeObserver(([box]) => (height.value = box?.contentRect.height || height.value));
    sizes.observe(list.current as HTMLElement);
    return () => sizes.disconnect();
  }, []);
  const wanted = filteredTags(entries.map(({ label }) => label), typed.value);
  const labels = new Set(wanted);
  const chosen = new Set(picked.value);
  const found = typed.value ? entries.filter(({ label }) => labels.has(label)) : [...entries];
  if (chosen.size > 0) found.sort((one, other) => Number(chosen.has(other.name)) - Number(chosen.has(one.name)));
  const off = new Set(entries.filter(({ name }) => isHidden(name)).map(({ name }) => name));
  const set = (hidden: (entry: Entry) => boolean): void => hide(entries.map(({ name }) => name), new Set(entries.filter(hidden).map(({ name }) => name)));
  const foundNames = new Set(found.map(({ name }) => name));
  const press = ({ name, runs }: Entry): void => {
    if (runs) pick(runs);
    else pick(chosen.has(name) ? picked.value.filter((one) => one !== name) : [...picked.value, name]);
  };
  const first = Math.max(0, Math.floor(top.value / ROW) - AROUND);
  const isShown = ({ name, runs }: Entry): boolean => !off.has(name) && (Boolean(runs) || chosen.size === 0 || chosen.has(name));
  const drawn = entries.filter(isShown).length;
  const rows = found.slice(first, Math.ceil((top.value + height.value) / ROW) + AROUND);
  return (
    <details class="legend" open={window.innerWidth > PHONE}>
      <summary>{drawn < entries.length ? t("{n} of {m} shown", { n: count(drawn), m: count(entries.length) }) : entries[0]?.runs ? t("{n} {n|group|groups}", { n: count(entries.length) }) : t("{n} {n|run|runs}", { n: count(entries.length) })}</summary>
      <input type="search" value={typed.value} aria-label={t("Search these names")} placeholder={t("Search these names")} spellcheck={false} onInput={({ currentTarget }) => (typed.value = currentTarget.value)} />
      <div class="legend-acts">
        <button disabled={found.length === 0} onClick={() => set(({ name }) => off.has(name) && !foundNames.has(name))}>{typed.value ? t("Show") : t("Show all")}</button>
        <button disabled={found.length === 0} onClick={() => set(({ name }) => off.has(name) || foundNames.has(name))}>{typed.value ? t("Hide") : t("Hide all")}</button>
        {typed.value && <button disabled={found.length === 0} onClick={() => set(({ name }) => !foundNames.has(name))}>{t("Only these")}</button>}
        <span class="soft" role="status">{typed.value ? t("{n} found", { n: count(found.length) }) : ""}</span>
        {chosen.size > 0 && <button onClick={() => pick([])}>{t("Unpick all")}</button>}
      </div>
      <ul class="legend-rows" ref={list} style={{ height: `${found.length * ROW}px` }} onScroll={({ currentTarget: { scrollTop } }) => (top.value = scrollTop - (scrollTop % (ROW * (AROUND / 2))))} onMouseLeave={() => (highlighted.value = "")}>
        <li class="legend-end" aria-hidden="true" style={{ top: `${found.length * ROW - 1}px`, height: "1px" }} />
        {rows.map((entry, at) => {
          const { name, label } = entry;
          const isOff = off.has(name);
          return (
            <li key={name} class={isOff ? "off" : ""} aria-setsize={found.length} aria-posinset={first + at + 1} style={{ top: `${(first + at) * ROW}px` }} onMouseEnter={() => (highlighted.value = name)}>
              <button class="eye" aria-pressed={!isOff} aria-label={t("Show {name}", { name: label })} title={isOff ? t("Show in the charts") : t("Hide in the charts")} onClick={() => set((one) => (one.name === name ? !isOff : off.has(one.name)))}>
                <Eye isOff={isOff} />
              </button>
              <button class={chosen.has(name) ? "name chosen" : "name"} aria-pressed={entry.runs ? undefined : chosen.has(name)} title={`${label}: ${entry.runs ? t("Show only the {runs} of this group") : t("Pick this {run}, in all views")}`} onClick={() => press(entry)}>
                <i class="swatch" style={{ background: isShown(entry) ? colourOf(name) : "var(--line)" }} />
                <span>{label}</span>
              </button>
            </li>
          );
        })}
      </ul>
    </details>
  );
}

function Eye({ isOff }: { isOff: boolean }) {
  return (
    <svg viewBox="0 0 16 16" aria-hidden="true">
      <path d="M1 8q7-9 14 0q-7 9-14 0z" />
      {isOff ? <path d="M3 14 13 2" /> : <circle cx="8" cy="8" r="2" />}
    </svg>
  );
}

chinese({
  "{n} of {m} shown": "显示 {m} 个中的 {n} 个",
  "{n} {n|group|groups}": "{n} 组",
  "{n} {n|run|runs}": "{n} 个{run}",
  "Search these names": "搜索名称",
  "Show": "显示",
  "Show all": "全部显示",
  "Hide": "隐藏",
  "Hide all": "全部隐藏",
  "Only these": "仅显示这些",
  "{n} found": "找到 {n} 个",
  "Unpick all": "取消选择",
  "Show {name}": "显示 {name}",
  "Show in the charts": "在图中显示",
  "Hide in the charts": "在图中隐藏",
  "Pick this {run}, in all views": "在所有视图中选择此{run}",
  "Show only the {runs} of this group": "只显示该组的{run}",
});
