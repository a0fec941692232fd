// The table of runs. Only the rows on the screen are in the document; two empty rows take the place of the others.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { address, change, go, linkTo } from "../../address.ts";
import { colourOf } from "../../colours.ts";
import { Age, Status } from "../../parts/basics.tsx";
import { names, pick, picked, shown, sort, type Run } from "../../runs.ts";
import { chinese, t } from "../../words.ts";
import { type Column, quoted } from "./columns.ts";

const ROW = 34; // pixels, as in list.css
const MORE = 10; // rows above and below the screen

export function Rows({ columns }: { columns: readonly Column[] }) {
  const box = useRef<HTMLDivElement>(null);
  const top = useSignal(0);
  const height = useSignal(800);
  const current = useSignal("");
  const runs = shown.value;
  const first = Math.max(0, Math.min(Math.floor(top.value / ROW) - MORE, runs.length - 1));
  const last = Math.min(runs.length, Math.ceil((top.value + height.value) / ROW) + MORE);
  const hasStatus = runs.some((run) => run.status);
  const width = 3 + (hasStatus ? 1 : 0) + columns.length;

  useEffect(() => {
    const element = box.current as HTMLDivElement;
    const watcher = new ResizeObserver(() => (height.value = element.clientHeight));
    watcher.observe(element);
    return () => watcher.disconnect();
  }, []);

  const move = (step: number): void => {
    const at = runs.findIndex((run) => run.id === current.value);
    const next = Math.max(0, Math.min(runs.length - 1, at < 0 ? Math.floor(top.value / ROW) : at + step));
    const element = box.current as HTMLDivElement;
    const place = next * ROW;
    if (place < element.scrollTop) element.scrollTop = place;
    else if (place + 2 * ROW > element.scrollTop + element.clientHeight) element.scrollTop = place + 2 * ROW - element.clientHeight;
    current.value = runs[next]?.id ?? "";
    requestAnimationFrame(() => element.querySelector<HTMLElement>("tr[tabindex='0']")?.focus());
  };
  const onKey = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if ((event.target as HTMLElement).closest("input:not([type=checkbox]), select, th")) return;
    const steps: Record<string, number> = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -1e9, End: 1e9 };
    const step = steps[event.key];
    if (step !== undefined) move(step);
    else if (event.key === "Enter" && current.value && (event.target as HTMLElement).tagName === "TR") go({ ...kept(), run: current.value });
    else if ((event.key === " " || event.key === "x") && current.value && (event.target as HTMLElement).tagName === "TR") toggle(current.value);
    else return;
    event.preventDefault();
  };

  return (
    <div class="rows" ref={box} onScroll={(event) => (top.value = event.currentTarget.scrollTop)} onKeyDown={onKey}>
      <table aria-rowcount={runs.length + 1}>
        <caption class="hidden-text">{t("Jobs and runs")}</caption>
        <thead>
          <tr aria-rowindex={1}>
            <th class="pick"><PickAll runs={runs} /></th>
            <Heading name="name" title={t("Name")} />
            {hasStatus && <Heading name="status" title={t("Status")} />}
            <Heading name="-created" title={t("Created")} />
            {columns.map((column) => (
              <Heading key={column.key} name={quoted(column.key)} title={column.title} isNumber={column.isNumber} />
            ))}
          </tr>
        </thead>
        <tbody>
          {first > 0 && <tr class="gap" aria-hidden="true"><td colSpan={width} style={{ height: `${first * ROW}px` }} /></tr>}
          {runs.slice(first, last).map((run, at) => (
            <tr
              key={run.id}
              data-run={run.id}
              aria-rowindex={first + at + 2}
              tabIndex={run.id === current.value || (!current.value && first + at === 0) ? 0 : -1}
              onFocus={() => (current.value = run.id)}
            >
              <td class="pick">
                <input type="checkbox" tabIndex={-1} aria-label={t("Pick {name}", { name: nameOf(run) })} checked={picked.value.includes(run.id)} onChange={() => toggle(run.id)} />
              </td>
              <td class="name">
                <i class="dot" style={{ background: colourOf(run.id) }} />
                <a tabIndex={-1} href={linkTo({ ...kept(), run: run.id })} title={run.id}>{nameOf(run)}</a>
                {(run.error || run.damaged) && <span class="warn" title={run.error || t("{n} damaged ranges were skipped", { n: run.damaged ?? 0 })}> !</span>}
              </td>
              {hasStatus && <td><Status status={run.status} place={run.queue_place} /></td>}
              <td class="soft"><Age time={run.created_at ?? run.updated_at} /></td>
              {columns.map((column) => {
                const text = column.text(run);
                return <td key={column.key} class={`${column.isNumber ? "number" : ""}${column.isOdd?.(run) ? " odd" : ""}`} title={text}>{text}</td>;
              })}
            </tr>
          ))}
          {last < runs.length && <tr class="gap" aria-hidden="true"><td colSpan={width} style={{ height: `${(runs.length - last) * ROW}px` }} /></tr>}
        </tbody>
      </table>
    </div>
  );
}

function nameOf(run: Run): string {
  return names.value.get(run.id) ?? run.id;
}

/** The fields of the address that stay when a run is opened, so that the way back leads to the same list. */
function kept(): Record<string, string> {
  const { run: _run, tab: _tab, line: _line, ...rest } = address.value;
  return rest;
}

function toggle(id: string): void {
  pick(picked.value.includes(id) ? picked.value.filter((one) => one !== id) : [...picked.value, id]);
}

function PickAll({ runs }: { runs: readonly Run[] }) {
  const isAll = runs.length > 0 && picked.value.length === runs.length;
  return <input type="checkbox" aria-label={t("Pick all")} checked={isAll} onChange={() => pick(isAll ? [] : runs.map((run) => run.id))} />;
}

/** A heading that sorts: the first click by its usual direction, the second one the other way round. */
function Heading({ name, title, isNumber = false }: { name: string; title: string; isNumber?: boolean }) {
  const plain = name.replace(/^-/, "");
  const isSorted = sort.value.replace(/^-/, "") === plain;
  const isDown = sort.value.startsWith("-");
  const next = isSorted ? (isDown ? plain : `-${plain}`) : name;
  return (
    <th scope="col" class={`${isNumber ? "number" : ""}${plain === "name" ? " name" : ""}`} aria-sort={isSorted ? (isDown ? "descending" : "ascending") : undefined}>
      <button class="plain" title={plain} onClick={() => change({ sort: next }, { replace: true })}>
        {title}
        <span aria-hidden="true">{isSorted ? (isDown ? " ↓" : " ↑") : ""}</span>
      </button>
    </th>
  );
}

chinese({
  "Jobs and runs": "作业与运行",
  "Name": "名称",
  "Status": "状态",
  "Created": "创建时间",
  "Pick {name}": "选择 {name}",
  "Pick all": "全选",
  "{n} damaged ranges were skipped": "跳过了 {n} 处损坏的数据",
});
