// The rows of a job's trace, a hundred at a time.
import { useState } from "preact/hooks";
import { change, field } from "../../address.ts";
import { ask } from "../../api.ts";
import { count, number } from "../../format.ts";
import { useAnswer } from "../../parts/answer.ts";
import { Copyable } from "../../parts/basics.tsx";
import { Dialog } from "../../parts/dialog.tsx";
import { Pending, Table } from "../../parts/table.tsx";
import { chinese, t } from "../../words.ts";
import type { TraceRows } from "./wire.ts";

const PAGE = 100;
const LONGEST = 60; // characters of a cell
const NUMBERS = /^(U?(BIG|HUGE|SMALL|TINY)?INT|INTEGER|DOUBLE|FLOAT|REAL|DECIMAL|NUMERIC)/i;
const table = field("table");
const offset = field("offset", "0");

export function Trace({ id }: { id: string }) {
  const first = Math.max(0, Math.trunc(Number(offset.value)) || 0);
  const [trace] = useAnswer(
    (signal) => ask<TraceRows>("trace", { run: id, query: { table: table.value || undefined, offset: first, limit: PAGE }, signal }),
    [id, table.value, first],
  );
  const [opened, setOpened] = useState<{ name: string; text: string }>();
  if (!trace.value) return <Pending answer={trace} />;
  const { tables, table: shown, columns, rows, total } = trace.value;
  const isNumber = columns.map(({ type }) => NUMBERS.test(type));
  if (tables.length === 0) return <p class="soft">{t("This job has written no trace.")}</p>;
  return (
    <div class="trace">
      <div class="job-bar">
        <label>
          {t("Table")}
          <select value={shown} onChange={(event) => change({ table: event.currentTarget.value, offset: "" })}>
            {tables.map((name) => <option key={name} value={name}>{name}</option>)}
          </select>
        </label>
        <Pages first={first} shown={rows.length} total={total} />
      </div>
      <Table name={shown} heads={[["#"], ...columns.map(({ name }, at) => (isNumber[at] ? ([name] as const) : name))]} kind="job-wide">
        {rows.map((row, at) => (
          <tr key={first + at}>
            <td class="number soft">{count(first + at)}</td>
            {row.map((value, column) => <Cell key={column} value={value} isNumber={isNumber[column] ?? false} open={(text) => setOpened({ name: columns[column]?.name ?? "", text })} />)}
          </tr>
        ))}
      </Table>
      {opened && (
        <Dialog title={opened.name} close={() => setOpened(undefined)}>
          <Copyable text={opened.text} />
          <div class="buttons"><button onClick={() => setOpened(undefined)}>{t("Close")}</button></div>
        </Dialog>
      )}
    </div>
  );
}

function Cell({ value, isNumber, open }: { value: unknown; isNumber: boolean; open: (text: string) => void }) {
  const kind = isNumber ? "number" : "";
  if (value === null || value === undefined) return <td class={`soft ${kind}`}>∅</td>;
  if (typeof value === "number") return <td class={kind} title={String(value)}>{Number.isInteger(value) ? value : number(value, 7)}</td>;
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  const line = text.replace(/\s+/g, " ");
  if (line.length <= LONGEST) return <td class={kind}>{line}</td>;
  return (
    <td>
      <button class="job-link" title={t("Show all of it")} onClick={() => open(text)}>{line.slice(0, LONGEST)}…</button>
    </td>
  );
}

function Pages({ first, shown, total }: { first: number; shown: number; total: number }) {
  const show = (at: number): void => change({ offset: at > 0 ? String(at) : "" });
  const last = Math.floor(Math.max(0, total - 1) / PAGE) * PAGE;
  return (
    <div class="job-pages">
      <button disabled={first === 0} aria-label={t("First page")} onClick={() => show(0)}>«</button>
      <button disabled={first === 0} aria-label={t("Page before")} onClick={() => show(first - PAGE)}>‹</button>
      <span aria-live="polite">{t("{from} to {to} of {total}", { from: count(shown ? first : 0), to: count(first + Math.max(0, shown - 1)), total: count(total) })}</span>
      <button disabled={first >= last} aria-label={t("Next page")} onClick={() => show(first + PAGE)}>›</button>
      <button disabled={first >= last} aria-label={t("Last page")} onClick={() => show(last)}>»</button>
    </div>
  );
}

chinese({
  "This job has written no trace.": "此作业没有写入轨迹。",
  "Table": "表",
  "Close": "关闭",
  "Show all of it": "显示全部",
  "First page": "第一页",
  "Page before": "上一页",
  "Next page": "下一页",
  "Last page": "最后一页",
  "{from} to {to} of {total}": "第 {from} 至 {to} 行，共 {total} 行",
});
