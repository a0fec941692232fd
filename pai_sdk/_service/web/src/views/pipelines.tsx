// Runs of pipelines: `#view=pipelines`, and one of them with its picture and its steps: `#view=pipelines&pipeline=ID`.
//
// The runs are files that another process writes, so they are read again: each second while one goes on.
import { useEffect } from "preact/hooks";
import { field, linkTo } from "../address.ts";
import { ask } from "../api.ts";
import { duration, zoned } from "../format.ts";
import { useAnswer } from "../parts/answer.ts";
import { Age, Copyable, Notice, Status } from "../parts/basics.tsx";
import { Pending, Table } from "../parts/table.tsx";
import { about } from "../place.ts";
import { said } from "../service_texts.ts";
import { chinese, t } from "../words.ts";
import "./pipelines.css";

interface PipelineRun {
  id: string;
  pipeline: string;
  status: string;
  created_at: number;
  ended_at: number | null;
}

interface Step {
  name: string;
  status: string;
  job_id: string;
  reason: string;
  error: string;
  started_at: number | null;
  ended_at: number | null;
}

interface PipelineDetail extends PipelineRun {
  parameters: Record<string, string>;
  steps: Step[];
  svg: string;
  is_stored?: boolean; // of a service: whether it can read the state that the run's process writes
}

const LIVE_MS = 1000;
const QUIET_MS = 5000;
const chosen = field("pipeline");

export function Pipelines() {
  return <main class="pipelines">{chosen.value ? <One key={chosen.value} id={chosen.value} /> : <><h1>{t("Pipelines")}</h1><All /></>}</main>;
}

function useClock(isLive: boolean, tick: () => void): void {
  useEffect(() => {
    const clock = setInterval(() => !document.hidden && tick(), isLive ? LIVE_MS : QUIET_MS);
    return () => clearInterval(clock);
  }, [isLive]);
}

function All() {
  const [answer, again] = useAnswer((signal) => ask<{ runs: (PipelineRun & { steps: number })[] }>("pipelines", { signal }), []);
  const runs = answer.value?.runs ?? [];
  useClock(runs.some(({ status }) => status === "running"), again);
  if (!answer.value) return <Pending answer={answer} />;
  if (runs.length === 0 && about.value?.kind === "service") return <p class="soft">{t("No pipeline has run jobs here. A run is listed when the job of its first step is submitted.")}</p>;
  if (runs.length === 0) return <p class="soft">{t("This folder has no runs of pipelines. Pipelines write them to {place}.", { place: "~/.pai/pipelines" })}</p>;
  return (
    <Table name={t("Runs of pipelines")} heads={[t("Pipeline"), t("Run"), t("Status"), [t("Steps")], t("Started"), t("Duration")]}>
      {runs.map((run) => (
        <tr key={run.id}>
          <th scope="row">{run.pipeline}</th>
          <td><a class="mono" href={linkTo({ view: "pipelines", pipeline: run.id })}>{lastPart(run.id)}</a></td>
          <td><Status status={run.status} /></td>
          <td class="number">{run.steps}</td>
          <td><Age time={run.created_at} /></td>
          <td>{run.status !== "interrupted" && ran(run.created_at, run.ended_at)}</td>
        </tr>
      ))}
    </Table>
  );
}

function One({ id }: { id: string }) {
  const [answer, again] = useAnswer((signal) => ask<PipelineDetail>("pipeline", { run: id, signal }), [id]);
  const run = answer.value;
  useClock(run?.status === "running", again);
  if (!run) return <Pending answer={answer} />;
  const failed = run.steps.filter(({ error }) => error);
  return (
    <>
      <p><a href={linkTo({ view: "pipelines" })}>{t("All runs")}</a></p>
      <h1>{run.pipeline} <Status status={run.status} /></h1>
      <p class="soft">
        <span class="mono">{lastPart(run.id)}</span> · {t("started {time}", { time: zoned(run.created_at) })}
        {run.status === "interrupted" && ` · ${t("no process works on it")}`}
        {run.ended_at !== null && ` · ${t("ran {time}", { time: duration(run.ended_at - run.created_at) })}`}
      </p>
      {run.is_stored === false && <Notice>{t("This page shows the jobs of the run only: the service cannot read its folder. With a store in OSS ({store}), it has all steps, their picture and the reasons of cache hits.", { store: "Pipeline(…, store=\"oss://…\")" })}</Notice>}
      {failed.map((step) => (
        <Notice key={step.name} kind="bad"><strong>{step.name}</strong>: <span class="pipeline-error">{said(step.error.replaceAll(`${step.job_id}-`, ""))}</span></Notice>
      ))}
      {run.svg && <div class="scroll pipeline-picture" tabIndex={0} role="region" aria-label={t("Picture of the steps")} dangerouslySetInnerHTML={{ __html: withoutStyle(run.svg) }} />}
      <h2>{t("Steps")}</h2>
      <Table name={t("Steps")} heads={[t("Name"), t("Status"), t("Ran"), t("Job"), t("Reason")]}>
        {run.steps.map((step) => (
          <tr key={step.name}>
            <th scope="row">{step.name}</th>
            <td><Status status={step.status} /></td>
            <td>{step.started_at !== null && step.status !== "cached" && ran(step.started_at, step.ended_at)}</td>
            <td class="mono">{step.job_id && about.value?.kind === "service" ? <a href={linkTo({ run: step.job_id })}>{step.job_id}</a> : step.job_id}</td>
            <td class="soft pipeline-reason">{step.reason}</td>
          </tr>
        ))}
      </Table>
      {Object.keys(run.parameters).length > 0 && (
        <>
          <h2>{t("Parameters")}</h2>
          <table>
            <tbody>
              {Object.entries(run.parameters).map(([name, value]) => <tr key={name}><th scope="row">{name}</th><td class="mono">{value}</td></tr>)}
            </tbody>
          </table>
        </>
      )}
      {run.is_stored !== false && ["failed", "stopped", "interrupted"].includes(run.status) && (
        <>
          <h2>{t("Go on with it")}</h2>
          <p class="soft">{t("Steps that have succeeded are not run again. With the file that describes the pipeline:")}</p>
          <Copyable text={`pai-sdk pipeline resume FILE.py ${lastPart(run.id) === "~" ? "" : `--run ${lastPart(run.id)}`}`.trim()} />
        </>
      )}
    </>
  );
}

function lastPart(id: string): string {
  return id === "~" ? (about.value?.place ?? id).replace(/\/$/, "").split("/").at(-1) ?? id : (id.split("/").at(-1) ?? id);
}

function ran(begin: number, end: number | null): string {
  return duration((end ?? Date.now() / 1000) - begin);
}

// The page allows no styles within elements; its own style sheet has what the picture needs.
function withoutStyle(svg: string): string {
  return svg.replace(/ style="[^"]*"/, "");
}

chinese({
  "This folder has no runs of pipelines. Pipelines write them to {place}.": "此文件夹中没有流水线运行。流水线默认写入 {place}。",
  "No pipeline has run jobs here. A run is listed when the job of its first step is submitted.": "还没有流水线在此运行作业。第一个步骤的作业提交后，运行就会列出。",
  "This page shows the jobs of the run only: the service cannot read its folder. With a store in OSS ({store}), it has all steps, their picture and the reasons of cache hits.": "此页面只显示该运行的作业：服务无法读取其文件夹。若存储在 OSS 中（{store}），则会显示所有步骤、步骤图和命中缓存的原因。",
  "Runs of pipelines": "流水线运行",
  "Pipeline": "流水线",
  "Run": "运行",
  "Steps": "步骤",
  "All runs": "全部运行",
  "started {time}": "开始于 {time}",
  "no process works on it": "没有进程在处理它",
  "Picture of the steps": "步骤图",
  "Job": "作业",
  "Reason": "原因",
  "Parameters": "参数",
  "Go on with it": "继续运行",
  "Steps that have succeeded are not run again. With the file that describes the pipeline:": "已成功的步骤不会再次执行。使用描述流水线的文件：",
});
