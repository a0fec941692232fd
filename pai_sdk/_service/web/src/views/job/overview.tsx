// What one wants to know of a job at first: why it failed, its main curves, what happened, its numbers.
import { address, change, linkTo } from "../../address.ts";
import { colourOf } from "../../colours.ts";
import { duration, moment, number, count } from "../../format.ts";
import { Notice, Status } from "../../parts/basics.tsx";
import { can } from "../../place.ts";
import { chinese, t } from "../../words.ts";
import { Charts } from "./charts.tsx";
import { FailureReport } from "./failure.tsx";
import { mainTags, useMarks } from "./marks.ts";
import { Table } from "./table.tsx";
import { UsageOfJob } from "./usage.tsx";
import { numberOf } from "./values.ts";
import type { JobDetail, Mark, RunDetail, Tag } from "./wire.ts";

const MOST_ROWS = 200;
const MOST_CHARTS = 4;
const SIGNS: Record<Mark["kind"], string> = { status: "●", event: "▪", checkpoint: "◆", not_finite: "✕" };

export function Overview({ run, job }: { run: RunDetail; job: JobDetail | null }) {
  const marks = useMarks(run, job);
  const scalars = run.tags.filter(({ kind }) => kind === "scalar");
  const hparams = Object.entries(run.hparams ?? {});
  return (
    <>
      {job?.failure && <FailureReport failure={job.failure} />}
      {job && job.started_at === null && job.ended_at === null && <Waiting job={job} />}
      <div class="two">
        <div>
          {scalars.length > 0 && <Charts run={run} job={job} tags={mainTags(run, MOST_CHARTS)} marks={marks} onPick={toLog} />}
          {scalars.length === 0 && !run.is_loading && <p class="soft">{t("This {run} has no metrics. A training writes them with {call}.", { call: "pai_sdk.report(loss=…)" })}</p>}
        </div>
        <WhatHappened marks={marks} job={job} />
      </div>
      {scalars.length > 0 && <Metrics tags={scalars} />}
      {job && can("usage") && <UsageOfJob id={run.id} job={job} />}
      {job && job.instances.length > 0 && <Instances job={job} />}
      {hparams.length > 0 && (
        <>
          <h2>{t("Hyperparameters")}</h2>
          <table>
            <tbody>
              {hparams.slice(0, MOST_ROWS).map(([name, value]) => (
                <tr key={name}><th scope="row">{name}</th><td class="mono">{value === null ? "None" : typeof value === "number" ? number(value, 7) : typeof value === "string" ? value : JSON.stringify(value)}</td></tr>
              ))}
            </tbody>
          </table>
          {hparams.length > MOST_ROWS && <p class="soft">{t("{n} more", { n: hparams.length - MOST_ROWS })}</p>}
        </>
      )}
    </>
  );
}

function toLog(time: number): void {
  change({ tab: "log", time: time.toFixed(3) });
}

function Waiting({ job }: { job: JobDetail }) {
  return (
    <Notice>
      {job.queue_place ? t("It waits in the queue at place {n}, and starts by itself.", { n: job.queue_place }) : t("It is being prepared, and starts by itself.")}
      {job.message && ` ${job.message}`}
    </Notice>
  );
}

function Metrics({ tags }: { tags: Tag[] }) {
  return (
    <>
      <h2>{t("Metrics")}</h2>
      <Table name={t("Metrics")} heads={[t("Metric"), [t("Last")], [t("Least")], [t("Largest")], [t("Step")], [t("Points")]]}>
        {tags.slice(0, MOST_ROWS).map((tag) => (
          <tr key={tag.tag}>
            <th scope="row"><a href={linkTo({ ...address.value, tab: "log", metric: tag.tag })} title={t("With the log")}>{tag.tag}</a></th>
            {[tag.last?.value, tag.min, tag.max].map((value, at) => <td key={at} class="number">{number(numberOf(value))}</td>)}
            <td class="number">{count(tag.last?.step ?? 0)}</td>
            <td class="number">
              {(tag.nan_count || tag.inf_count) ? <span class="warn">{t("{n} not finite", { n: (tag.nan_count ?? 0) + (tag.inf_count ?? 0) })} </span> : null}
              {count(tag.count)}
            </td>
          </tr>
        ))}
      </Table>
      {tags.length > MOST_ROWS && <p class="soft">{t("{n} more", { n: tags.length - MOST_ROWS })}</p>}
    </>
  );
}

/** The statuses, events, checkpoints and the first values that are not finite, in their order; each leads to the log. */
function WhatHappened({ marks, job }: { marks: Mark[]; job: JobDetail | null }) {
  if (marks.length === 0 && !job) return null;
  const start = job?.created_at ?? marks[0]?.time ?? 0;
  const shown = marks.slice(-MOST_ROWS);
  return (
    <section class="happened">
      <h2>{t("What happened")}</h2>
      {job && <Phases job={job} />}
      {marks.length > shown.length && <p class="soft">{t("The last {n} of {total}", { n: shown.length, total: count(marks.length) })}</p>}
      <ol tabIndex={0} aria-label={t("What happened")}>
        {shown.map((mark, at) => (
          <li key={at} data-kind={mark.kind}>
            <span class="time">
              {mark.time !== null && (
                <a href={linkTo({ ...address.value, tab: "log", time: mark.time.toFixed(3) })} title={t("The log at {time}", { time: moment(mark.time) })}>
                  +{duration(mark.time - start)}
                </a>
              )}
            </span>
            <span class="sign" aria-hidden="true">{SIGNS[mark.kind]}</span>
            <span>
              {mark.kind === "status" ? <Status status={mark.text} /> : mark.text}
              {mark.step !== null && mark.kind !== "checkpoint" && <span class="soft"> {t("step {n}", { n: count(mark.step) })}</span>}
            </span>
          </li>
        ))}
      </ol>
    </section>
  );
}

/** The statuses as a bar, each as long as it lasted. */
function Phases({ job }: { job: JobDetail }) {
  const end = job.ended_at ?? Date.now() / 1000;
  const lengths = job.history.map((phase, at) => Math.max(0, (job.history[at + 1]?.time ?? end) - phase.time));
  const said = job.history.map((phase, at) => `${phase.status} ${duration(lengths[at] ?? 0)}`);
  if (!lengths.some((length) => length > 0)) return null;
  return (
    <div class="phases" role="img" aria-label={said.join(", ")}>
      {job.history.map((phase, at) => (
        (lengths[at] ?? 0) > 0 && <span key={at} class={phase.status} title={said[at]} style={{ flexGrow: lengths[at] ?? 0 }} />
      ))}
    </div>
  );
}

function Instances({ job }: { job: JobDetail }) {
  return (
    <>
      <h2>{t("Instances")}</h2>
      <Table name={t("Instances")} heads={[t("Name"), t("Status"), [t("Exit code")], t("Ran"), t("Node")]}>
        {job.instances.slice(0, MOST_ROWS).map((one) => (
          <tr key={one.name}>
            <th scope="row"><span class="job-colour" style={{ background: colourOf(one.name) }} /> {one.name}</th>
            <td><Status status={one.status} /></td>
            <td class={`number ${one.exit_code ? "bad" : ""}`}>{one.exit_code ?? ""}</td>
            <td>{one.started_at !== null && duration((one.ended_at ?? Date.now() / 1000) - one.started_at)}</td>
            <td class="soft">{one.node}</td>
          </tr>
        ))}
      </Table>
    </>
  );
}

chinese({
  "This {run} has no metrics. A training writes them with {call}.": "此{run}没有指标。训练用 {call} 写入指标。",
  "{n} more": "另有 {n} 个",
  "It waits in the queue at place {n}, and starts by itself.": "正在排队，位于第 {n} 位，将自动启动。",
  "It is being prepared, and starts by itself.": "正在准备，将自动启动。",
  "Metrics": "指标",
  "Metric": "指标",
  "Last": "最新",
  "Least": "最小",
  "Largest": "最大",
  "Step": "步数",
  "Points": "点数",
  "With the log": "与日志一起查看",
  "{n} not finite": "{n} 个非有限值",
  "What happened": "经过",
  "The last {n} of {total}": "共 {total} 条中的最后 {n} 条",
  "step {n}": "第 {n} 步",
  "The log at {time}": "{time} 的日志",
  "Status": "状态",
  "Exit code": "退出码",
  "Ran": "运行时长",
  "Node": "节点",
});
