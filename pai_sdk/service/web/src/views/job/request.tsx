// The request that made a job, and how that of another one differs.
import { change, field } from "../../address.ts";
import { ask } from "../../api.ts";
import { Copyable, Notice } from "../../parts/basics.tsx";
import { list, names } from "../../runs.ts";
import { chinese, t } from "../../words.ts";
import { useAnswer } from "./answer.ts";
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
      </div>
      {other.value && <Diff id={id} other={other.value} />}
      <h2>{t("Request")}</h2>
      <Copyable text={JSON.stringify(request, null, 2)} />
    </div>
  );
}

function Diff({ id, other }: { id: string; other: string }) {
  const [diff] = useAnswer((signal) => ask<{ rows: Difference[]; same: number }>("diff", { run: id, query: { with: other }, signal }), [id, other]);
  if (diff.refusal) return <Notice kind="bad">{diff.refusal.message}</Notice>;
  if (!diff.value) return <p class="soft">{t("Loading …")}</p>;
  const { rows, same } = diff.value;
  const kinds = { added: t("only there"), removed: t("only here"), changed: t("differs") };
  return (
    <>
      <h2>{t("Differences")}</h2>
      {rows.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label={t("Differences")}>
          <table class="job-wide diff">
            <thead>
              <tr><th scope="col">{t("Field")}</th><th scope="col">{names.value.get(id) ?? id}</th><th scope="col">{names.value.get(other) ?? other}</th></tr>
            </thead>
            <tbody>
              {rows.map((row) => (
                <tr key={row.path} class={row.kind}>
                  <th scope="row" class="mono"><span title={kinds[row.kind]} aria-label={kinds[row.kind]} role="img">{SIGNS[row.kind]}</span> {row.path}</th>
                  <td class="mono">{row.kind !== "added" && textOf(row.before)}</td>
                  <td class="mono">{row.kind !== "removed" && textOf(row.after)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
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
  "only there": "仅在对方",
  "only here": "仅在本作业",
  "differs": "不同",
  "Differences": "差异",
  "Field": "字段",
  "The requests are the same.": "两个请求相同。",
  "{n} other fields are the same.": "另有 {n} 个字段相同。",
});
