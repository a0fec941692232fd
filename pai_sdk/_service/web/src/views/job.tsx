// One job, or one run of a folder: `#run=ID&tab=overview`.
//
//   stream says that the run has changed --> run and job are read again --> head and the chosen tab
import { useEffect } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { field, go, linkTo, withoutRun, withoutTab } from "../address.ts";
import { ask, type Refusal } from "../api.ts";
import { count } from "../format.ts";
import { useAnswer } from "../parts/answer.ts";
import { Notice } from "../parts/basics.tsx";
import { Pending } from "../parts/table.tsx";
import { about, can } from "../place.ts";
import { list, type RunList } from "../runs.ts";
import { statusText } from "../service_texts.ts";
import { follow } from "../stream.ts";
import { title } from "../told.ts";
import { chinese, t } from "../words.ts";
import { CurvesTab } from "./job/curves_tab.tsx";
import { Files } from "./job/files.tsx";
import { JobHead } from "./job/job_head.tsx";
import { LogTab } from "./job/log_tab.tsx";
import { Overview } from "./job/overview.tsx";
import { Request } from "./job/request.tsx";
import { Trace } from "./job/trace.tsx";
import type { JobDetail, RunDetail } from "./job/wire.ts";
import "./job.css";

const RETRY_MS = 1000;
const chosen = field("tab", "overview");

export function Job({ id }: { id: string }) {
  const [run, readRun] = useAnswer((signal) => runOf(id, signal), [id]);
  const [job, readJob] = useAnswer((signal) => jobOf(id, signal), [id]);
  useEffect(() => {
    return follow("runs", ({ event, data }) => {
      if (event !== "resync" && !data.changed?.includes(id) && !data.removed?.includes(id)) return;
      readRun();
      readJob();
    });
  }, [id]);
  // A new job is in the table of jobs first; the list of runs has it a moment later.
  const isEarly = run.value === null;
  useEffect(() => {
    if (!isEarly) return undefined;
    const waiting = setInterval(readRun, RETRY_MS);
    return () => clearInterval(waiting);
  }, [isEarly]);
  const name = run.value?.name ?? id;
  const status = statusText(job.value?.status ?? run.value?.status ?? "");
  useEffect(() => {
    title.value = `${name}${status ? ` · ${status}` : ""} · pai`;
    return () => void (title.value = "pai");
  }, [name, status]);

  const refusal = job.refusal ?? run.refusal;
  if (refusal) return <main><NoRun id={id} refusal={refusal} /></main>;
  if (job.value === undefined || run.value === undefined) {
    return <main><Pending answer={{ isLost: run.isLost || job.isLost || false }} /></main>;
  }
  const detail: RunDetail = run.value ?? { id, v: "", tags: [], is_loading: true };
  return (
    <main class="job">
      <JobHead run={detail} job={job.value} />
      {(detail.is_loading || detail.error || detail.damaged) && <ReadingState run={detail} />}
      <Tabs run={detail} job={job.value} />
    </main>
  );
}

/** A run; null for that of a new job which is not in the list yet. */
async function runOf(id: string, signal: AbortSignal): Promise<RunDetail | null> {
  if (about.value?.kind === "service" && !list.value?.runs.some((run) => run.id === id)) {
    const query = { filter: `id=${JSON.stringify(id)}`, fields: "status", limit: 1 };
    const { runs } = await ask<RunList>("runs", { query, signal });
    if (runs.length === 0) return null;
  }
  return ask<RunDetail>("run", { run: id, signal });
}

/** The job of a run; null for a run that no job of a service has made. */
async function jobOf(id: string, signal: AbortSignal): Promise<JobDetail | null> {
  if (about.value?.kind === "folder") return null;
  try {
    return await ask<JobDetail>("job", { run: id, signal });
  } catch (error) {
    if ((error as Refusal).code === "RUN_HAS_NO_JOB") return null;
    throw error;
  }
}

function Tabs({ run, job }: { run: RunDetail; job: JobDetail | null }) {
  // A part without content is shown only if the address names it.
  const has = (part: string): boolean => chosen.value === part || (run.parts?.includes(part) ?? false);
  const isRunning = !!job && job.started_at !== null && job.ended_at === null;
  const tabs: Record<string, [string, () => ComponentChildren]> = {
    overview: [t("Overview"), () => <Overview run={run} job={job} />],
    ...(has("log") || isRunning ? { log: [t("Log"), () => <LogTab run={run} job={job} />] } : {}),
    ...(run.tags.length > 0 || chosen.value === "curves" ? { curves: [t("Curves"), () => <CurvesTab run={run} job={job} />] } : {}),
    ...(can("files") && has("files") ? { files: [t("Files"), () => <Files id={run.id} />] } : {}),
    ...(can("trace") && has("trace") ? { trace: [t("Trace"), () => <Trace id={run.id} />] } : {}),
    ...(job ? { request: [t("Request"), () => <Request id={run.id} request={job.request} />] } : {}),
  };
  const names = Object.keys(tabs);
  const current = names.includes(chosen.value) ? chosen.value : "overview";
  const open = (name: string): void => go({ ...withoutTab(), tab: name === "overview" ? "" : name });
  const moved = (event: KeyboardEvent): void => {
    const at = names.indexOf(current);
    const places: Record<string, number> = { ArrowRight: at + 1, ArrowLeft: at - 1 + names.length, Home: 0, End: names.length - 1 };
    const name = names[(places[event.key] ?? Number.NaN) % names.length];
    if (!name) return;
    event.preventDefault();
    open(name);
    document.getElementById(`tab-${name}`)?.focus();
  };
  return (
    <>
      <div class="tabs" role="tablist" aria-label={t("Parts of the job")} onKeyDown={moved}>
        {Object.entries(tabs).map(([name, [text]]) => (
          <button
            key={name}
            id={`tab-${name}`}
            role="tab"
            class="plain"
            aria-selected={name === current}
            aria-controls="tab-panel"
            tabIndex={name === current ? 0 : -1}
            onClick={() => open(name)}
          >
            {text}
          </button>
        ))}
      </div>
      <section id="tab-panel" role="tabpanel" aria-labelledby={`tab-${current}`}>{tabs[current]?.[1]()}</section>
    </>
  );
}

function ReadingState({ run }: { run: RunDetail }) {
  return (
    <Notice kind={run.error ? "bad" : "info"}>
      {run.error && <p>{t("Its metrics cannot be read: {error}", { error: run.error })}</p>}
      {run.is_loading && <p>{t("Its metrics are still being read.")}</p>}
      {run.damaged ? <p>{t("{n} damaged {n|part of its event files was|parts of its event files were} skipped.", { n: count(run.damaged) })}</p> : null}
    </Notice>
  );
}

function NoRun({ id, refusal }: { id: string; refusal: Refusal }) {
  return (
    <>
      <h1>{id}</h1>
      <Notice kind="bad">{refusal.message}</Notice>
      {refusal.status === 404 && <p>{t("It was deleted, or the address has a mistake.")}</p>}
      <p><a href={linkTo(withoutRun())}>{t("All jobs")}</a></p>
    </>
  );
}

chinese({
  "Overview": "概览",
  "Log": "日志",
  "Files": "文件",
  "Trace": "轨迹",
  "Request": "请求",
  "Parts of the job": "作业的各部分",
  "Its metrics cannot be read: {error}": "无法读取其指标：{error}",
  "Its metrics are still being read.": "其指标仍在读取中。",
  "{n} damaged {n|part of its event files was|parts of its event files were} skipped.": "已跳过其事件文件中 {n} 处损坏的部分。",
  "It was deleted, or the address has a mistake.": "它已被删除，或地址有误。",
  "All jobs": "全部作业",
});
