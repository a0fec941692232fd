// What one wants to know of a job at first: why it failed, its main curves, what happened, its numbers.
import { address, change, linkTo } from "../../address.ts";
import { colourOf } from "../../colours.ts";
import { duration, number, count } from "../../format.ts";
import { Notice, Status } from "../../parts/basics.tsx";
import { Table } from "../../parts/table.tsx";
import { can } from "../../place.ts";
import { said } from "../../service_texts.ts";
import { chinese, t } from "../../words.ts";
import { Charts } from "./charts.tsx";
import { Events } from "./events.tsx";
import { FailureReport } from "./failure.tsx";
import { mainTags, useMarks } from "./marks.ts";
import { Hyperparameters, Summary } from "./summary.tsx";
import { UsageOfJob } from "./usage.tsx";
import { Watched } from "./watched.tsx";
import { numberOf } from "./values.ts";
import type { JobDetail, RunDetail, Tag } from "./wire.ts";

const MOST_ROWS = 200;
const MOST_CHARTS = 4;

export function Overview({ run, job }: { run: RunDetail; job: JobDetail | null }) {
  const marks = useMarks(run, job);
  const scalars = run.tags.filter(({ kind }) => kind === "scalar");
  const hasFindings = job?.rules?.some(({ findings }) => findings.length > 0);
  const rules = <Watched rules={job?.rules} />;
  return (
    <>
      {job?.failure && <FailureReport id={run.id} failure={job.failure} />}
      {job && job.started_at === null && job.ended_at === null && <Waiting job={job} />}
      <div class="two">
        <div>
          {job && <Summary run={run} job={job} />}
          <Hyperparameters of={run.hparams ?? {}} />
        </div>
        <Events id={run.id} marks={marks} job={job} />
      </div>
      {hasFindings && rules}
      {scalars.length > 0 && <Charts run={run} job={job} tags={mainTags(run, MOST_CHARTS)} marks={marks} onPick={toLog} />}
      {scalars.length === 0 && !run.is_loading && !job?.failure && <p class="soft">{t("This {run} has no metrics. A training writes them with {call}.", { call: "pai_sdk.report(loss=…)" })}</p>}
      {scalars.length > 0 && <Metrics tags={scalars} />}
      {job && can("usage") && <UsageOfJob id={run.id} job={job} />}
      {job && job.instances.length > 0 && <Instances id={run.id} job={job} />}
      {!hasFindings && rules}
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
      {job.message && ` ${said(job.message)}`}
    </Notice>
  );
}

function Metrics({ tags }: { tags: Tag[] }) {
  return (
    <>
      <h2>{t("Metrics")}</h2>
      <Table name={t("Metrics")} heads={[t("Metric"), [t("Last")], [t("Min")], [t("Max")], [t("Step")], [t("Points")]]}>
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

function Instances({ id, job }: { id: string; job: JobDetail }) {
  const hasNodes = job.instances.some(({ node }) => node);
  return (
    <>
      <h2>{t("Instances")}</h2>
      <Table name={t("Instances")} heads={[t("Name"), t("Status"), [t("Exit code")], t("Ran"), ...(hasNodes ? [t("Node")] : [])]}>
        {job.instances.slice(0, MOST_ROWS).map((one) => (
          <tr key={one.name}>
            <th scope="row"><span class="job-colour" style={{ background: colourOf(one.name) }} /> {one.name.replace(`${id}-`, "")}</th>
            <td><Status status={one.status} /></td>
            <td class={`number ${one.exit_code ? "bad" : ""}`}>{one.exit_code ?? ""}</td>
            <td>{one.started_at !== null && duration((one.ended_at ?? Date.now() / 1000) - one.started_at)}</td>
            {hasNodes && <td class="soft">{one.node}</td>}
          </tr>
        ))}
      </Table>
    </>
  );
}

chinese({
  "This {run} has no metrics. A training writes them with {call}.": "此{run}没有指标。训练用 {call} 写入指标。",
  "It waits in the queue at place {n}, and starts by itself.": "正在排队，位于第 {n} 位，将自动启动。",
  "It is being prepared, and starts by itself.": "正在准备，将自动启动。",
  "Metrics": "指标",
  "Metric": "指标",
  "Last": "最新",
  "Min": "最小",
  "Max": "最大",
  "Step": "步数",
  "Points": "点数",
  "With the log": "与日志一起查看",
  "{n} not finite": "{n} 个非有限值",
  "Status": "状态",
  "Exit code": "退出码",
  "Ran": "运行时长",
  "Node": "节点",
});
