// The request that made a job, and how that of another one differs.
import { useId } from "preact/hooks";
import { change, field, linkTo } from "../../address.ts";
import { ask } from "../../api.ts";
import { useAnswer } from "../../parts/answer.ts";
import { Copyable } from "../../parts/basics.tsx";
import { Pending, Table } from "../../parts/table.tsx";
import { names } from "../../runs.ts";
import { chinese, t } from "../../words.ts";
import type { Difference } from "./wire.ts";

const other = field("with");
const MOST_NAMES = 1000; // that are suggested
const SIGNS = { added: "+", removed: "−", changed: "≠" };

export function Request({ id, request }: { id: string; request: Record<string, unknown> }) {
  const list = useId();
  const ids = new Map([...names.value].filter(([one]) => one !== id).map(([one, name]) => [name, one]));
  const choose = ({ currentTarget: { value } }: { currentTarget: HTMLInputElement }): void => change({ with: ids.get(value.trim()) ?? value.trim() });
  return (
    <div class="request">
      <div class="job-bar">
        <label>
          {t("Compare with")}
          <input type="search" list={list} placeholder={t("Name or id of a job")} value={names.value.get(other.value) ?? other.value} onChange={choose} />
          <datalist id={list}>{[...ids.keys()].slice(0, MOST_NAMES).map((name) => <option key={name} value={name} />)}</datalist>
        </label>
        {other.value && <a href={linkTo({ view: "curves", only: [id, other.value].map(encodeURIComponent).join(",") })}>{t("Compare their curves")}</a>}
      </div>
      {other.value && <Diff id={id} other={other.value} />}
      <h2>{t("Request")}</h2>
      <Copyable text={JSON.stringify(request, null, 2)} />
    </div>
  );
}

function Diff({ id, other }: { id: string; other: string }) {
  const [diff] = useAnswer((signal) => ask<{ rows: Difference[]; same: number }>("diff", { run: id, query: { with: other }, signal }), [id, other]);
  if (!diff.value) return <Pending answer={diff} />;
  const { rows, same } = diff.value;
  const unique = rows.filter(({ group }) => group === "unique");
  return (
    <>
      <h2>{t("Differences")}</h2>
      <Rows ids={[id, other]} rows={rows.filter(({ group }) => group !== "unique")} />
      {unique.length > 0 && (
        <details>
          <summary>{t("{n} more that always {n|differs|differ}", { n: unique.length })}</summary>
          <Rows ids={[id, other]} rows={unique} />
        </details>
      )}
      <p class="soft">{rows.length === unique.length ? t("The requests are the same.") : t("{n} other {n|field is|fields are} the same.", { n: same })}</p>
    </>
  );
}

function Rows({ ids, rows }: { ids: readonly string[]; rows: readonly Difference[] }) {
  const kinds = { added: t("only there"), removed: t("only here"), changed: t("differs") };
  if (rows.length === 0) return null;
  return (
    <Table name={t("Differences")} heads={[t("Field"), ...ids.map((one) => names.value.get(one) ?? one)]} kind="job-wide diff">
      {rows.map(({ path, kind, group, before, after }) => (
        <tr key={path} class={kind}>
          <th scope="row" class="mono">
            <span title={kinds[kind]} aria-label={kinds[kind]} role="img">{SIGNS[kind]}</span> {group === "hyperparameter" ? path.slice(path.indexOf(".") + 1) : path}
          </th>
          <td class="mono">{kind !== "added" && textOf(before)}</td>
          <td class="mono">{kind !== "removed" && textOf(after)}</td>
        </tr>
      ))}
    </Table>
  );
}

function textOf(values: unknown): string {
  const value: unknown = Array.isArray(values) && values.length === 1 ? values[0] : values; // such as a command
  return typeof value === "string" ? value : JSON.stringify(value, null, 1) ?? "";
}

chinese({
  "Compare with": "对比",
  "Name or id of a job": "作业的名称或 ID",
  "Compare their curves": "对比曲线",
  "{n} more that always {n|differs|differ}": "另有 {n} 个总是不同的字段",
  "only there": "仅在对方",
  "only here": "仅在本作业",
  "differs": "不同",
  "Differences": "差异",
  "Field": "字段",
  "The requests are the same.": "两个请求相同。",
  "{n} other {n|field is|fields are} the same.": "另有 {n} 个字段相同。",
});
