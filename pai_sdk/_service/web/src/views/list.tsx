// The list of jobs and runs: filter, columns, order, what is picked; and what to do where there is none yet.
import { untracked, useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { address, change, field, linkTo } from "../address.ts";
import { count, number } from "../format.ts";
import { Notice } from "../parts/basics.tsx";
import { Menu } from "../parts/menu.tsx";
import { isPhone } from "../parts/clock.ts";
import { filter, hasMore, isPart, list, listError, listOf, question, readMore, sort, type RunList } from "../runs.ts";
import { chinese, language, t, translated } from "../words.ts";
import { Chips } from "./list/chips.tsx";
import { columnOf, factOf, fitting, keysOf, splitKey, titleOf, usualKeys, type Column } from "./list/columns.ts";
import { Empty } from "./list/empty.tsx";
import { canFold, isFolded, rows } from "./list/folded.ts";
import { FilterBox } from "./list/filter_box.tsx";
import { ColumnsMenu } from "./list/menu.tsx";
import { Picked } from "./list/picked.tsx";
import { fixedOf, leastOf, Rows, widthsOf } from "./list/rows.tsx";
import { shortKey } from "./list/suggest.ts";
import { ViewsMenu } from "./list/views_menu.tsx";
import "./list.css";

const cols = field("cols");
const FRAME = 50; // pixels beside the columns: padding, borders, the bar that scrolls

export function List() {
  const found = list.value;
  const room = useSignal(innerWidth);
  useEffect(() => {
    const onResize = (): void => void (room.value = innerWidth);
    const onKey = (event: KeyboardEvent): void => {
      if (event.ctrlKey || event.metaKey || event.altKey || (event.target as HTMLElement).closest("input:not([type=checkbox]), textarea, select, dialog")) return;
      if (event.key !== "?") return;
      event.preventDefault();
      document.querySelector<HTMLElement>(".keys summary")?.click();
    };
    document.addEventListener("keydown", onKey);
    window.addEventListener("resize", onResize);
    return () => {
      document.removeEventListener("keydown", onKey);
      window.removeEventListener("resize", onResize);
    };
  }, []);
  const isAnswered = listOf.value === question() && !listError.value;
  const runs = rows.value;
  const { columns, widths } = useMemo(() => {
    const chosen = cols.value === "-" ? [] : cols.value ? cols.value.split(",").map(decodeURIComponent) : found ? usualKeys(found) : [];
    const all = found ? withSorted(chosen, found).map((key) => columnOf(key, found)) : [];
    const widths = untracked(() => widthsOf(runs, all));
    if (cols.value || isPhone.value) return { columns: all, widths };
    const least = widths.others.map((width, at) => leastOf(all[at] as Column, width));
    const kept = fitting(all.map(({ key }) => key), least, room.value - FRAME - fixedOf(widths), sort.value.replace(/^-/, ""));
    const isKept = (_: unknown, at: number): boolean => kept.has(all[at]?.key ?? "");
    return { columns: all.filter(isKept), widths: { ...widths, others: widths.others.filter(isKept) } };
  }, [found, runs, cols.value, sort.value, language.value, translated().size, isPhone.value, room.value]);
  const keys = columns.map(({ key }) => key);
  if (found && found.total === 0 && !filter.value && isAnswered) return <Empty isLoading={found.loading} />;
  return (
    <main class="list" aria-busy={isPart.value || (!isAnswered && !listError.value)}>
      <h1 class="hidden-text">{t("{Runs}")}</h1>
      <div class="tools">
        <FilterBox />
        <ColumnsMenu keys={keys} />
        {isPhone.value && found && <Order keys={keys} />}
        <ViewsMenu />
        {!isPhone.value && <Keys />}
      </div>
      {listError.value && found && found.runs.length > 0 && <p class="soft">{t("The list below is the one from before.")}</p>}
      <div class="facts">
        <span class="soft" role="status">{found ? countText(found) : listError.value ? "" : t("reading the list…")}</span>
        {hasMore.value && <button class="plain more" onClick={readMore}>{t("Show more")}</button>}
        {found && <Chips found={found} />}
        {canFold.value && (
          <label title={t("Trials of a search and steps of a pipeline as one row")}>
            <input type="checkbox" checked={isFolded.value} onChange={() => change({ fold: isFolded.value ? "-" : "" }, { replace: true })} /> {t("Fold")}
          </label>
        )}
        {!filter.value && found && !isPhone.value && <Examples found={found} />}
      </div>
      <Picked />
      {found && found.total === 0 && isAnswered && (
        <Notice>
          {found.loading ? t("No {run} matches this filter so far; more are being read.") : t("No {run} matches this filter.")}{" "}
          <button onClick={() => change({ q: "" })}>{t("Clear the filter")}</button>
        </Notice>
      )}
      {found && found.runs.length > 0 && <Rows columns={columns} widths={widths} />}
    </main>
  );
}

/** The columns, and the one that the list is sorted by. */
function withSorted(keys: string[], found: RunList): string[] {
  const key = sort.value.replace(/^-/, "");
  const [group, name] = splitKey(key);
  const isKnown = keysOf(found).includes(group === "metrics" ? `metrics.${factOf(name, found.tags)[0]}` : key);
  return isKnown && !keys.includes(key) ? [...keys, key] : keys;
}

function countText({ total, all, runs, loading }: RunList): string {
  const n = count(total);
  const found = filter.value ? t("{n} of {all} {all|run|runs}", { n, all: count(all) }) : t("{n} {n|run|runs}", { n });
  const part = runs.length < total && !isPart.value ? `${found}, ${t("the first {n} are shown", { n: count(runs.length) })}` : found;
  return loading ? `${part}, ${t("more are being read")}` : part;
}

/** Filters that this list has something for. */
function Examples({ found }: { found: RunList }) {
  const metric = Math.max(0, found.tags.findIndex((tag) => /loss$/.test(tag)));
  const values = found.runs.flatMap((run) => run.last?.[metric] ?? []).sort((one, other) => one - other);
  const middle = values[Math.floor(values.length / 2)];
  const examples = [
    ...(middle === undefined ? [] : [`${shortKey(`metrics.${found.tags[metric]}`)}<${number(middle, 2).replace("−", "-")}`]),
    ...(found.runs.some((run) => run.nan?.some(Boolean)) ? ["nan>0"] : []),
    "created>-1d",
  ];
  return (
    <span class="examples">
      <span class="soft">{t("For example:")}</span>
      {examples.map((text) => <a key={text} href={linkTo({ ...address.value, q: text })}><code>{text}</code></a>)}
    </span>
  );
}

/** What the headings of a table are for: a phone has cards. */
function Order({ keys }: { keys: readonly string[] }) {
  const [isDown, by] = [sort.value.startsWith("-"), sort.value.replace(/^-/, "")];
  const titles: Record<string, string> = { created: t("Created"), name: t("Name"), status: t("Status") };
  const known = new Set([...Object.keys(titles), ...keys, by]);
  return (
    <span class="order">
      <select aria-label={t("Order")} value={by} onChange={(event) => change({ sort: event.currentTarget.value === "created" ? "" : event.currentTarget.value }, { replace: true })}>
        {[...known].map((key) => <option key={key} value={key}>{titles[key] ?? titleOf(key)}</option>)}
      </select>
      <button aria-label={t("Reverse the order")} onClick={() => change({ sort: isDown ? by : `-${by}` }, { replace: true })}>{isDown ? "↓" : "↑"}</button>
    </span>
  );
}

function Keys() {
  const keys = [
    ["/", t("to the filter")], ["j k ↓ ↑", t("next row, row before")], ["Enter", t("open the {run}")], ["→ ←", t("open and close a search")],
    ["x", t("pick the {run}; with Shift, up to the one picked before")], ["?", t("these keys")],
  ] as const;
  return (
    <span class="keys">
      <Menu title="?" label={t("Keys")}>
        <dl>{keys.map(([key, text]) => <div key={key}><dt>{key.split(" ").map((one) => <kbd key={one}>{one}</kbd>)}</dt><dd>{text}</dd></div>)}</dl>
      </Menu>
    </span>
  );
}

chinese({
  "The list below is the one from before.": "下面是之前的列表。",
  "reading the list…": "正在读取列表…",
  "Show more": "显示更多",
  "No {run} matches this filter so far; more are being read.": "目前没有符合此筛选条件的{run}；更多正在读取。",
  "No {run} matches this filter.": "没有符合此筛选条件的{run}。",
  "{n} {n|run|runs}": "{n} 个{run}",
  "{n} of {all} {all|run|runs}": "{all} 个{run}中的 {n} 个",
  "the first {n} are shown": "显示前 {n} 个",
  "more are being read": "更多正在读取",
  "For example:": "例如：",
  "Order": "排序",
  "Reverse the order": "反向排序",
  "Keys": "按键",
  "to the filter": "跳到筛选框",
  "next row, row before": "下一行、上一行",
  "open the {run}": "打开{run}",
  "open and close a search": "展开与折叠搜索",
  "Trials of a search and steps of a pipeline as one row": "搜索的试验与流水线的步骤各为一行",
  "Fold": "折叠",
  "pick the {run}; with Shift, up to the one picked before": "选择{run}；按住 Shift 则选到上次选择处",
  "these keys": "这些按键",
});
