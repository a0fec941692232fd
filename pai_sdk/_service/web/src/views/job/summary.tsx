// What a job runs, as short facts, and its hyperparameters.
import { useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { duration, moment, number, zone } from "../../format.ts";
import { Copyable } from "../../parts/basics.tsx";
import { chinese, t } from "../../words.ts";
import type { JobDetail, RunDetail } from "./wire.ts";

const AT_ONCE = 60;
const PUBLIC = /^(github|gitlab|gitee)\.com(\/[\w.-]+){2}$/;

export function Summary({ run, job }: { run: RunDetail; job: JobDetail }) {
  const { command, algorithm, image, tasks, code, repository, commit, branch, has_changes, inputs, outputs, workspace, priority, max_runtime_s } = job.summary;
  const nodes = [...new Set(job.instances.flatMap(({ node }) => node ?? []))];
  const at = `${repository}${commit && ` @ ${commit.slice(0, 10)}`}`;
  const source = commit && PUBLIC.test(repository) ? <a href={`https://${repository}/commit/${commit}`} target="_blank" rel="noreferrer">{at}</a> : at;
  return (
    <dl class="summary">
      <Fact name={t("Command")} isWide>{command && <Copyable text={command} />}</Fact>
      <Fact name={t("Algorithm")}>{algorithm}</Fact>
      <Fact name={t("Image")} isWide>{image && <code>{image}</code>}</Fact>
      <Fact name={t("Instances")} isWide>
        {tasks.map((task) => <div key={task.name}>{task.name && `${task.name}: `}{task.count} × {task.instance_type} <code>{task.image}</code></div>)}
        {nodes.length > 0 && <div class="soft">{t("on {nodes}", { nodes: nodes.join(", ") })}</div>}
      </Fact>
      <Fact name={t("Code")} isWide>
        {at && <div title={commit}>{source} {branch && `(${branch})`} {has_changes && <span class="warn">{t("with changes that are not committed")}</span>}</div>}
        {code && <code>{code}</code>}
      </Fact>
      <Fact name={t("Inputs")} isWide>{channels(inputs)}</Fact>
      <Fact name={t("Outputs")} isWide>{channels(outputs)}</Fact>
      <Fact name={t("Owner")}>{job.owner}</Fact>
      <Fact name={t("Workspace")}>{workspace}</Fact>
      <Fact name={t("Cost")}>{run.cost !== undefined && `${run.cost < 1 ? number(run.cost, 4) : run.cost.toFixed(2)} ${run.currency ?? ""}`}</Fact>
      <Fact name={t("Priority")}>{priority || ""}</Fact>
      <Fact name={t("Limit")}>{max_runtime_s ? duration(max_runtime_s) : ""}</Fact>
      <Moment name={t("Created")} time={job.created_at} />
      <Moment name={t("Started")} time={job.started_at} />
      <Moment name={t("Ended")} time={job.ended_at} />
    </dl>
  );
}

function Fact({ name, isWide = false, children }: { name: string; isWide?: boolean; children: ComponentChildren }) {
  if (!children || (Array.isArray(children) && !children.some(Boolean))) return null;
  return <div class={isWide ? "wide" : ""}><dt>{name}</dt><dd>{children}</dd></div>;
}

function Moment({ name, time }: { name: string; time: number | null }) {
  return time ? <Fact name={`${name} (${zone(time)})`}>{moment(time)}</Fact> : null;
}

function channels(of: Readonly<Record<string, string>>): ComponentChildren {
  const names = Object.keys(of);
  return names.length > 0 && (
    <details>
      <summary>{names.join(", ")}</summary>
      {Object.entries(of).map(([name, uri]) => <div key={name}>{name}: <code>{uri}</code></div>)}
    </details>
  );
}

export function Hyperparameters({ of }: { of: Readonly<Record<string, unknown>> }) {
  const [most, setMost] = useState(AT_ONCE);
  const all = Object.entries(of);
  if (all.length === 0) return null;
  return (
    <>
      <h2>{t("Hyperparameters")}</h2>
      <dl class="summary hparams">
        {all.slice(0, most).map(([name, value]) => <Fact key={name} name={name}><span class="mono">{textOf(value)}</span></Fact>)}
      </dl>
      {all.length > most && <button onClick={() => setMost(all.length)}>{t("{n} more", { n: all.length - most })}</button>}
    </>
  );
}

function textOf(value: unknown): string {
  return value === null ? "None" : typeof value === "number" ? number(value, 7) : typeof value === "string" ? value : JSON.stringify(value);
}

chinese({
  "Algorithm": "算法",
  "on {nodes}": "位于 {nodes}",
  "Code": "代码",
  "with changes that are not committed": "含未提交的更改",
  "Inputs": "输入",
  "Outputs": "输出",
  "Owner": "所有者",
  "Workspace": "工作空间",
  "Cost": "费用",
  "Priority": "优先级",
  "Limit": "时限",
  "Created": "创建时间",
  "Started": "开始时间",
  "Ended": "结束时间",
  "{n} more": "另有 {n} 个",
});
