// The table of runs, or their cards on a phone. Only those on the screen are in the document; empty ones take the
// place of the others.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { change, go } from "../../address.ts";
import { colourOf } from "../../colours.ts";
import { age, duration } from "../../format.ts";
import { Star } from "../../parts/annotations.tsx";
import { Age, Status } from "../../parts/basics.tsx";
import { isPhone } from "../../parts/clock.ts";
import { about } from "../../place.ts";
import { listOf, names, pick, picked, sort } from "../../runs.ts";
import { said } from "../../service_texts.ts";
import { chinese, t } from "../../words.ts";
import { Card } from "./card.tsx";
import { isOver, type Column, widthOf } from "./columns.ts";
import { idsOf, isOpen, linkOf, placeOf, progressText, rows, setOpen } from "./folded.ts";
import type { Row } from "./folding.ts";
import { segmentsOf } from "./segments.ts";
import { Value, Warning } from "./value.tsx";

const [ROW, CARD] = [34, 88]; // pixels, as in list.css
const MORE = 10; // rows above and below the screen
const [FIRST_MORE, DRAWN_MS] = [1, 300]; // the first drawing has fewer, so that it is there sooner
const STEP = 4; // rows are exchanged after so many were scrolled over
const MOST_PICKED = 200; // at once; the address has their names
const PICK_PIXELS = 36; // the column of the boxes, as in list.css
const SENTENCES = /^(cause|note)$/; // columns that get the room that others leave, within these pixels
const [LEAST_SENTENCE, MOST_SENTENCE] = [208, 560];
const FALLING = /^(created|started|updated|ended|duration|cost)$|\.max$/; // keys whose largest values are looked at first

/** Where the list was left: the run at its top, and the one with the focus. */
let lastPlace = { id: "", offset: 0, of: "", current: "" };

export function Rows({ columns, widths }: { columns: readonly Column[]; widths: Widths }) {
  const box = useRef<HTMLDivElement>(null);
  const top = useSignal(0);
  const more = useSignal(FIRST_MORE);
  const size = useSignal({ width: innerWidth, height: innerHeight });
  const isBack = useRef(lastPlace.of !== "" && lastPlace.of === listOf.value); // from a job that was opened here
  const current = useSignal(isBack.current ? lastPlace.current : "");
  const anchor = useRef(isBack.current ? { ...lastPlace } : { id: "", offset: 0, of: "" }); // the first run on the screen, which live changes keep there
  const lastPicked = useRef("");
  const runs = rows.value;
  const chosen = new Set(picked.value);
  const hasStatus = runs.some((run) => run.status);
  const height = isPhone.value ? CARD : ROW;
  const at = current.value ? runs.findIndex((run) => run.id === current.value) : -1;
  const first = Math.floor(top.value / height) - more.value;
  const last = first + Math.ceil(size.value.height / height) + 2 * more.value + STEP;
  const segments = segmentsOf(runs.length, first, last, at);
  const tabbable = at >= 0 ? current.value : runs[Math.min(runs.length - 1, Math.floor(top.value / height) + (top.value > 0 ? STEP - 1 : 0))]?.id;
  const nameWidth = Math.min(widths.name, Math.max(136, Math.round(size.value.width * 0.4)));
  const wanted = fixedOf(widths) + nameWidth - widths.name + widths.others.reduce((sum, width) => sum + width, 0);
  let excess = Math.max(0, wanted - size.value.width);
  const others = widths.others.map((width, number) => {
    const given = Math.min(excess, width - leastOf(columns[number] as Column, width));
    excess -= given;
    return width - given;
  });
  const focused = box.current?.contains(document.activeElement) ? document.activeElement?.closest<HTMLElement>("[data-run]")?.dataset.run : undefined;

  useEffect(() => {
    const element = box.current as HTMLDivElement;
    const watcher = new ResizeObserver(() => (size.value = { width: element.clientWidth, height: element.clientHeight }));
    watcher.observe(element);
    const onKey = (event: KeyboardEvent): void => {
      const isElsewhere = !(event.target as HTMLElement).closest(".rows [data-run], input:not([type=checkbox]), textarea, select, dialog, details");
      if (isElsewhere && !event.defaultPrevented && "jk".includes(event.key) && !event.ctrlKey && !event.metaKey) move(event);
    };
    document.addEventListener("keydown", onKey);
    const drawing = setTimeout(() => (more.value = MORE), DRAWN_MS);
    return () => {
      lastPlace = { ...anchor.current, current: current.value };
      clearTimeout(drawing);
      watcher.disconnect();
      document.removeEventListener("keydown", onKey);
    };
  }, []);

  // Rows that come, go or change places move neither what is on the screen nor the focus.
  useLayoutEffect(() => {
    const element = box.current as HTMLDivElement;
    if (anchor.current.of !== listOf.value) {
      if (anchor.current.of) element.scrollTop = 0;
      anchor.current = { id: "", offset: 0, of: listOf.value };
    } else if (element.scrollTop > 0 || isBack.current) {
      const place = runs.findIndex((run) => run.id === anchor.current.id);
      const wanted = place * height + anchor.current.offset;
      if (place >= 0 && Math.abs(element.scrollTop - wanted) >= 1) element.scrollTop = wanted;
    }
    if (isBack.current) onScroll();
    const last = isBack.current ? current.value : focused;
    if (last && document.activeElement === document.body) focusRow(runs.some(({ id }) => id === last) ? last : tabbable);
    isBack.current = false;
  }, [runs]);

  const onScroll = (): void => {
    const { scrollTop } = box.current as HTMLDivElement;
    top.value = scrollTop - (scrollTop % (height * STEP)); // only then is anything drawn again
    const latest = rows.value;
    anchor.current = { ...anchor.current, id: (scrollTop > 0 && latest[Math.floor(scrollTop / height)]?.id) || "", offset: scrollTop % height };
  };
  const focusRow = (id: string | undefined): void => {
    if (id) box.current?.querySelector<HTMLElement>(`[data-run="${CSS.escape(id)}"]`)?.focus({ preventScroll: true });
  };
  const move = (event: KeyboardEvent): void => {
    const latest = rows.value;
    const element = box.current as HTMLDivElement;
    const page = Math.max(1, Math.floor(element.clientHeight / height) - 2);
    const steps: Record<string, number> = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -1e9, End: 1e9 };
    const step = steps[event.key];
    if (step === undefined || latest.length === 0) return;
    event.preventDefault();
    const here = latest.findIndex((run) => run.id === current.value);
    const next = here < 0 ? Math.ceil(element.scrollTop / height) : Math.max(0, Math.min(latest.length - 1, here + step));
    const place = next * height;
    if (place < element.scrollTop) element.scrollTop = place;
    else if (place + 2 * height > element.scrollTop + element.clientHeight) element.scrollTop = place + 2 * height - element.clientHeight;
    current.value = latest[next]?.id ?? "";
    focusRow(current.value); // at once, if it is there: the next key is then for the rows
    requestAnimationFrame(() => focusRow(current.value));
  };
  const toggle = (id: string, isRange = false): void => {
    const [from, to] = [runs.findIndex((run) => run.id === lastPicked.current), runs.findIndex((run) => run.id === id)];
    const ids = (isRange && from >= 0 ? runs.slice(Math.min(from, to), Math.max(from, to) + 1) : runs.slice(to, to + 1)).flatMap(idsOf);
    lastPicked.current = id;
    pick(ids.every((one) => chosen.has(one)) ? picked.value.filter((one) => !ids.includes(one)) : [...new Set([...picked.value, ...ids])]);
  };
  const onKey = (event: KeyboardEvent): void => {
    const target = event.target as HTMLElement;
    if (event.ctrlKey || event.metaKey || event.altKey || target.closest("thead")) return;
    const isRow = "run" in target.dataset;
    const row = rows.value.find((one) => one.id === current.value);
    const wanted = { ArrowRight: true, ArrowLeft: false }[event.key];
    if (event.key === "Enter" && isRow && row) go(placeOf(row));
    else if (row?.group && wanted !== undefined) setOpen(row.group, wanted);
    else if (event.key.toLowerCase() === "x" || (event.key === " " && isRow)) toggle(current.value, event.shiftKey);
    else return move(event);
    event.preventDefault();
  };

  const pickBox = (run: Row, tab: number) => {
    const ids = idsOf(run);
    const count = ids.filter((id) => chosen.has(id)).length;
    return <input type="checkbox" tabIndex={tab} aria-label={t("Pick {name}", { name: nameOf(run) })} checked={count === ids.length} indeterminate={count > 0 && count < ids.length} onClick={(event) => toggle(run.id, event.shiftKey)} />;
  };
  const name = (run: Row, tab: number) => (
    <>
      {!run.group && about.value?.kind === "service" && <Star id={run.id} name={nameOf(run)} isOn={run.star ?? false} tab={tab} />}
      {run.group ? <Fold row={run} tab={tab} /> : <i class="dot" style={{ background: colourOf(run.id) }} />}
      <a tabIndex={tab} href={linkOf(run)} title={run.group ? undefined : run.id}>{nameOf(run)}</a>
      {!run.group && (run.error || run.damaged) && <Warning text={run.error || t("{n} damaged {n|range was|ranges were} skipped", { n: run.damaged ?? 0 })} />}
    </>
  );
  /** The rows on the screen, and for all rows above, below and between them a gap as high as they are. */
  const eachRow = (gap: (height: number, key: string) => ComponentChildren, row: (run: Row, tab: number, at: number) => ComponentChildren) =>
    segments.flatMap(({ from, to, isGap }) =>
      isGap
        ? [gap((to - from) * height, `gap ${from === 0 ? "first" : to === runs.length ? "last" : "between"}`)]
        : runs.slice(from, to).map((run, number) => row(run, run.id === tabbable ? 0 : -1, from + number)),
    );
  if (isPhone.value)
    return (
      <div class="rows cards" ref={box} onScroll={onScroll} onKeyDown={onKey} role="list" aria-label={t("{Runs}")}>
        {eachRow(
          (pixels, key) => <div key={key} role="presentation" style={{ height: `${pixels}px` }} />,
          (run, tab, number) => (
            <div key={run.id} class="card" role="listitem" data-run={run.id} aria-setsize={runs.length} aria-posinset={number + 1} tabIndex={tab} onFocusIn={() => (current.value = run.id)}>
              <Card run={run} columns={columns} head={<><label class="pick">{pickBox(run, tab)}</label>{name(run, tab)}</>} />
            </div>
          ),
        )}
      </div>
    );
  return (
    <div class="rows" ref={box} onScroll={onScroll} onKeyDown={onKey}>
      <table aria-rowcount={runs.length + 1}>
        <caption class="hidden-text">{t("{Runs}")}</caption>
        <colgroup>
          <col style={{ width: `${PICK_PIXELS}px` }} />
          <col style={{ width: `${nameWidth}px` }} />
          {hasStatus && <col style={{ width: `${widths.status}px` }} />}
          <col style={{ width: `${widths.created}px` }} />
          {columns.map((column, number) => <col key={column.key} style={{ width: `${others[number]}px` }} />)}
          <col />
        </colgroup>
        <thead>
          <tr aria-rowindex={1}>
            <th class="pick"><PickAll runs={runs} chosen={chosen} /></th>
            <Heading name="name" title={t("Name")} />
            {hasStatus && <Heading name="status" title={t("Status")} />}
            <Heading name="created" title={t("Created")} />
            {columns.map((column) => <Heading key={column.key} name={column.key} title={column.title} isNumber={column.isNumber} />)}
            <td />
          </tr>
        </thead>
        <tbody>
          {eachRow(
            (pixels, key) => <tr key={key} class="gap" aria-hidden="true"><td colSpan={4 + (hasStatus ? 1 : 0) + columns.length} style={{ height: `${pixels}px` }} /></tr>,
            (run, tab, number) => (
              <tr key={run.id} class={run.isWithin ? "within" : undefined} data-run={run.id} aria-rowindex={number + 2} tabIndex={tab} onFocusIn={() => (current.value = run.id)}>
                <td class="pick">{pickBox(run, tab)}</td>
                <td class="name">{name(run, tab)}</td>
                {run.group && <td colSpan={hasStatus ? 2 : 1} title={progressText(run.group)}>{progressText(run.group)}</td>}
                {!run.group && hasStatus && <td title={said(run.waits_for ?? run.sub_status ?? "")}><Status status={run.status} place={run.queue_place} /></td>}
                {!run.group && <td class="soft"><Age time={run.created_at ?? run.updated_at} /></td>}
                {columns.map((column) => <Cell key={column.key} column={column} run={run} />)}
                <td />
              </tr>
            ),
          )}
        </tbody>
      </table>
    </div>
  );
}

function Fold({ row: { group, name = "" }, tab }: { row: Row; tab: number }) {
  const isNow = group && isOpen(group);
  return <button class="plain fold" tabIndex={tab} aria-expanded={isNow} aria-label={t("{Runs} of {name}", { name })} onClick={() => group && setOpen(group, !isNow)}>{isNow ? "▾" : "▸"}</button>;
}

function Cell({ column, run }: { column: Column; run: Row }) {
  const kind = column.isNumber ? "number" : column.key === "cause" ? "bad" : "";
  return <td class={`${kind}${column.isOdd?.(run) ? " odd" : ""}`} title={column.isOdd?.(run) ? undefined : (column.exact ?? column.text)(run)}><Value column={column} run={run} /></td>;
}

export type Widths = ReturnType<typeof widthsOf>;

/** The pixels that the columns need which are always there. */
export function fixedOf({ name, status, created }: Widths): number {
  return PICK_PIXELS + name + status + created;
}

/** The least pixels of a column. */
export function leastOf({ key }: Column, width: number): number {
  return SENTENCES.test(key) ? Math.min(width, LEAST_SENTENCE) : width;
}

export function widthsOf(runs: readonly Row[], columns: readonly Column[]) {
  const statuses = runs.map((run) => `○ ${run.status ?? ""}${run.queue_place === undefined ? "" : ` ${t("no. {n} in the queue", { n: run.queue_place })}`}`);
  const created = widthOf(t("Created"), [age(Date.now() / 1000 - 7000)]);
  const progress = runs.flatMap(({ group }) => (group ? [progressText(group)] : [])); // as wide as both
  return {
    name: widthOf(t("Name"), runs.map((run) => `★ ●    ${nameOf(run)}`)),
    status: runs.some((run) => run.status) ? Math.max(widthOf(t("Status"), statuses), progress.length > 0 ? widthOf("", progress) - created : 0) : 0,
    created,
    others: columns.map((column) => widthOf(column.title, texts(column, runs), undefined, SENTENCES.test(column.key) ? MOST_SENTENCE : undefined)),
  };
}

function* texts(column: Column, runs: readonly Row[]): Iterable<string> {
  if (column.key === "duration" && !runs.every(isOver)) yield duration(3599); // they count on
  for (const run of runs) yield column.text(run) + (column.oddPoints?.(run) ? " ⚠ " : "");
}

function nameOf({ group, isWithin, labels, name, id }: Row): string {
  return group?.name ?? (isWithin ? (labels?.["pai-sdk-step"] ?? name) : undefined) ?? names.value.get(id) ?? id;
}

function PickAll({ runs, chosen }: { runs: readonly Row[]; chosen: ReadonlySet<string> }) {
  const ids = useMemo(() => [...new Set(runs.flatMap(idsOf))], [runs]);
  const here = ids.filter((id) => chosen.has(id)).length;
  const isAll = ids.length > 0 && here === ids.length;
  const isTooMany = ids.length > MOST_PICKED;
  return (
    <input
      type="checkbox"
      aria-label={t("Pick all")}
      title={isTooMany ? t("At most {n} can be picked at once; a filter narrows the list", { n: MOST_PICKED }) : t("Pick all")}
      disabled={isTooMany && here === 0}
      checked={isAll}
      indeterminate={here > 0 && !isAll}
      onClick={() => pick(here > 0 ? [] : ids)}
    />
  );
}

/** A heading that sorts: the first click by its usual direction, the second one the other way round. */
function Heading({ name, title, isNumber = false }: { name: string; title: string; isNumber?: boolean }) {
  const isSorted = sort.value.replace(/^-/, "") === name;
  const isDown = sort.value.startsWith("-");
  const goesDown = isSorted ? !isDown : FALLING.test(name);
  return (
    <th scope="col" class={`${isNumber ? "number" : ""}${name === "name" ? " name" : ""}`} aria-sort={isSorted ? (isDown ? "descending" : "ascending") : undefined}>
      <button class="plain" title={t("Sort by {name}", { name })} onClick={() => change({ sort: goesDown ? `-${name}` : name }, { replace: true })}>
        <span class="title">{title}</span>
        {isSorted && <span aria-hidden="true">{isDown ? " ↓" : " ↑"}</span>}
      </button>
    </th>
  );
}

chinese({
  "Name": "名称",
  "Status": "状态",
  "Created": "创建时间",
  "Pick {name}": "选择 {name}",
  "{Runs} of {name}": "{name} 的{run}",
  "Pick all": "全选",
  "At most {n} can be picked at once; a filter narrows the list": "一次最多选择 {n} 个；可用筛选缩小列表",
  "Sort by {name}": "按 {name} 排序",
  "{n} damaged {n|range was|ranges were} skipped": "跳过了 {n} 处损坏的数据",
});
