// The head of a job: what it is, how it does, and what can be done with it.
import { useState } from "preact/hooks";
import { go, linkTo, withoutRun, withoutTab } from "../../address.ts";
import { ask } from "../../api.ts";
import { colourOf } from "../../colours.ts";
import { duration, zoned } from "../../format.ts";
import { Star } from "../../parts/annotations.tsx";
import { Age, Status, useCopy } from "../../parts/basics.tsx";
import { Bell } from "../../parts/bell.tsx";
import { isPhone, now } from "../../parts/clock.ts";
import { Confirm } from "../../parts/dialog.tsx";
import { Menu } from "../../parts/menu.tsx";
import { can, type Can } from "../../place.ts";
import { said } from "../../service_texts.ts";
import { ENDED } from "../../statuses.ts";
import { chinese, t } from "../../words.ts";
import { Annotated, Archive } from "./annotations.tsx";
import { Rerun } from "./rerun.tsx";
import type { JobDetail, RunDetail } from "./wire.ts";

const OURS = "pai-sdk-"; // labels that the library uses itself
const OF_CODE = "git-"; // the overview has them

export function JobHead({ run, job }: { run: RunDetail; job: JobDetail | null }) {
  const all = job?.labels ?? run.labels ?? {};
  const labels = Object.entries(all).filter(([name]) => !name.startsWith(OURS) && !name.startsWith(OF_CODE));
  return (
    <header class="job-head">
      <div class="job-title">
        <h1><span class="job-colour" style={{ background: colourOf(run.id) }} /> {run.name ?? run.id}</h1>
        <Status status={job?.status ?? run.status} place={job?.queue_place ?? undefined} />
        {job?.annotations && <Star id={run.id} name={run.name ?? run.id} isOn={job.annotations.star} />}
        {job && <Actions id={run.id} name={run.name ?? run.id} job={job} />}
      </div>
      <p class="job-facts soft">
        <CopyId id={run.id} />
        {job ? <Times job={job} /> : <span>{t("changed")} <Age time={run.updated_at} /></span>}
        {job?.owner && <span>{t("by {owner}", { owner: job.owner })}</span>}
        <PartOf labels={all} />
        {labels.map(([name, value]) => (
          <a key={name} class="job-label" href={linkTo({ q: `labels.${word(name)}=${word(value)}` })}>{name}={value}</a>
        ))}
      </p>
      {job?.annotations && <Annotated id={run.id} annotations={job.annotations} canChange={canAnnotate(job)} />}
      {job?.message && !job.failure && job.started_at !== null && (
        <p class={job.ended_at === null ? "warn" : "soft"} role={job.ended_at === null ? "status" : undefined}>{job.sub_status ? `${job.sub_status}: ` : ""}{said(job.message.replaceAll(`${run.id}-`, ""))}</p>
      )}
    </header>
  );
}

/** The search or the pipeline that has made the job, as a link to it. */
function PartOf({ labels }: { labels: Readonly<Record<string, string>> }) {
  const { "pai-sdk-study": study, "pai-sdk-trial": trial, "pai-sdk-pipeline-run": pipeline, "pai-sdk-step": step } = labels;
  return (
    <>
      {study && <a class="job-label" href={linkTo({ view: "study", study })}>{t("trial {n} of a search", { n: trial ?? "" })}</a>}
      {pipeline && <a class="job-label" href={linkTo({ view: "pipelines", pipeline })}>{t("step {name} of a pipeline", { name: step ?? "" })}</a>}
    </>
  );
}

// A name or value as the filter's language has it.
export function word(text: string): string {
  return /^[\w./-]+$/.test(text) ? text : `"${text.replace(/["\\]/g, "\\$&")}"`;
}

function CopyId({ id }: { id: string }) {
  const [isCopied, copy] = useCopy();
  return (
    <button class="plain mono id" title={t("Copy the id")} onClick={() => copy(id)}>
      {id} <span class="soft" aria-live="polite">{isCopied ? t("Copied") : t("Copy")}</span>
    </button>
  );
}

function Times({ job }: { job: JobDetail }) {
  const isOver = job.ended_at !== null;
  const end = job.ended_at ?? now.value;
  const queued = job.started_at === null ? end - (job.created_at ?? end) : (job.queued_s ?? job.started_at - (job.created_at ?? job.started_at));
  return (
    <>
      <span title={zoned(job.created_at)}>{t("created")} <Age time={job.created_at} /></span>
      <span>{job.started_at === null && !isOver ? t("waiting for {time}", { time: duration(queued) }) : t("queued {time}", { time: duration(queued) })}</span>
      {job.started_at !== null && (
        <span title={zoned(job.started_at)}>{isOver ? t("ran {time}", { time: duration(end - job.started_at) }) : t("running for {time}", { time: duration(end - job.started_at) })}</span>
      )}
      {isOver && <span title={zoned(job.ended_at)}>{t("ended")} <Age time={job.ended_at} /></span>}
    </>
  );
}

function canAnnotate(job: JobDetail): boolean {
  return job.can.includes("annotate");
}

function Actions({ id, name, job }: { id: string; name: string; job: JobDetail }) {
  const [asking, setAsking] = useState<"" | "stop" | "delete" | "rerun">("");
  const [isStopping, setStopping] = useState(false);
  const isOver = ENDED.has(job.status);
  const close = (): void => setAsking("");
  const may = (what: Can): boolean => can(what) && job.can.includes(what);
  const stop = async (): Promise<void> => {
    await ask("stop", { run: id });
    setStopping(true);
  };
  const remove = async (): Promise<void> => {
    await ask("remove", { run: id });
    go(withoutRun());
  };
  const stopping = !isOver && (isStopping || job.status === "Terminating");
  const others = (
    <>
      <a class="button" href={linkTo({ ...withoutTab(), tab: "request" })}>{t("Compare request")}</a>
      {job.annotations && canAnnotate(job) && <Archive id={id} isArchived={job.annotations.archived} />}
      {may("delete") && isOver && <button class="danger" onClick={() => setAsking("delete")}>{t("Delete")}</button>}
    </>
  );
  return (
    <div class="buttons">
      {!isOver && <Bell jobs={[{ id, name }]} />}
      {may("stop") && !isOver && (
        <button class="danger" aria-disabled={stopping} aria-live="polite" onClick={() => !stopping && setAsking("stop")}>{stopping ? t("Stopping …") : t("Stop")}</button>
      )}
      {may("rerun") && <button onClick={() => setAsking("rerun")}>{t("Re-run …")}</button>}
      {isPhone.value ? <Menu title="⋯" label={t("More")} isOfActions>{others}</Menu> : others}
      {asking === "stop" && (
        <Confirm title={t("Stop this job?")} text={t("{name} ends; its checkpoints and log stay.", { name })} yes={t("Stop the job")} act={stop} close={close} />
      )}
      {asking === "delete" && (
        <Confirm
          title={t("Delete this job?")}
          text={t("{name} leaves the list, with its log and metrics. This cannot be undone.", { name })}
          yes={t("Delete for ever")}
          act={remove}
          close={close}
        />
      )}
      {asking === "rerun" && <Rerun id={id} close={close} />}
    </div>
  );
}

chinese({
  "changed": "更改于",
  "by {owner}": "所有者 {owner}",
  "trial {n} of a search": "搜索的试验 {n}",
  "step {name} of a pipeline": "流水线的步骤 {name}",
  "Copy the id": "复制 ID",
  "created": "创建于",
  "waiting for {time}": "已等待 {time}",
  "queued {time}": "排队 {time}",
  "ran {time}": "运行 {time}",
  "running for {time}": "已运行 {time}",
  "ended": "结束于",
  "Stop": "停止",
  "Stopping …": "正在停止…",
  "Re-run …": "重新运行…",
  "Compare request": "比较请求",
  "More": "更多",
  "Delete": "删除",
  "Stop this job?": "停止此作业？",
  "{name} ends; its checkpoints and log stay.": "{name} 将结束；其检查点和日志会保留。",
  "Stop the job": "停止作业",
  "Delete this job?": "删除此作业？",
  "{name} leaves the list, with its log and metrics. This cannot be undone.": "{name} 及其日志和指标将从列表中删除，无法撤销。",
  "Delete for ever": "永久删除",
});
