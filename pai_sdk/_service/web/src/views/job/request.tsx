// The request that made a job, and how that of another one differs.
import { change, field, linkTo } from "../../address.ts";
import { ask } from "../../api.ts";
import { Copyable } from "../../parts/basics.tsx";
import { list, names } from "../../runs.ts";
import { chinese, t } from "../../words.ts";
import { useAnswer } from "./answer.ts";
import { Pending, Table } from "./table.tsx";
import type { Difference } from "./wire.ts";

const other = field("with");
const SIGNS = { added: "+", removed: "−", changed: "≠" };

export function Request({ id, request }: { id: string; request: Record<string, unknown> }) {
  const ids = (list.value?.runs ?? []).map((run) => run.id).filter((known) => known !== id);
  if (other.value && !ids.includes(other.value)) ids.unshift(other.value);
  return (
    <div class="request">
      <div class="job-bar">
        <label>
          {t("Compare with")}
          <select value={other.value} onChange={(event) => change({ with: event.currentTarget.value })}>
            <option value="">–</option>
            {ids.map((one) => <option key={one} value={one}>{names.value.get(one) ?? one}</option>)}
          </select>
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
  const kinds = { added: t("only there"), removed: t("only here"), changed: t("differs") };
  return (
    <>
      <h2>{t("Differences")}</h2>
      {rows.length > 0 && (
        <Table name={t("Differences")} heads={[t("Field"), names.value.get(id) ?? id, names.value.get(other) ?? other]} kind="job-wide diff">
          {rows.map((row) => (
            <tr key={row.path} class={row.kind}>
              <th scope="row" class="mono"><span title={kinds[row.kind]} aria-label={kinds[row.kind]} role="img">{SIGNS[row.kind]}</span> {row.path}</th>
              <td class="mono">{row.kind !== "added" && textOf(row.before)}</td>
              <td class="mono">{row.kind !== "removed" && textOf(row.after)}</td>
            </tr>
          ))}
        </Table>
      )}
      <p class="soft">{rows.length === 0 ? t("The requests are the same.") : t("{n} other fields are the same.", { n: same })}</p>
    </>
  );
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value, null, 1) ?? "";
}

chinese({
  "Compare with": "对比",
  "Compare their curves": "对比曲线",
  "only there": "仅在对方",
  "only here": "仅在本作业",
  "differs": "不同",
  "Differences": "差异",
  "Field": "字段",
  "The requests are the same.": "两个请求相同。",
  "{n} other fields are the same.": "另有 {n} 个字段相同。",
});
