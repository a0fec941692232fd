// Who holds what, who waits and why: `#view=queue`, the figures of `pai-sdk top --queue`.
//
//   stream says that runs have changed --> the queue is read again, at most every 2 s; its use of machines every 10 s
import { useEffect } from "preact/hooks";
import { linkTo } from "../address.ts";
import { ask } from "../api.ts";
import { bytes, duration, number } from "../format.ts";
import { useAnswer } from "../parts/answer.ts";
import { Age, Status } from "../parts/basics.tsx";
import { Pending, Table } from "../parts/table.tsx";
import { said } from "../service_texts.ts";
import { follow } from "../stream.ts";
import { chinese, t } from "../words.ts";
import "./queue.css";

interface Amounts {
  instances: number;
  cpus: number;
  memory_gib: number;
  gpus: number;
}

interface Started {
  id: string;
  name: string;
  owner: string;
  since: number;
  instances: {
    name: string;
    status: string;
    node?: string | null;
    cpu_percent?: number | null;
    memory_bytes?: number | null;
    gpu_percent?: number | null;
    gpu_memory_percent?: number | null;
  }[];
}

// What is not known or has no limit is missing.
interface Queue {
  user: string;
  capacity: { resource: keyof Amounts; total?: number | null; used: number }[];
  nodes?: number | null;
  users: { user: string; share: number; past: number; running: number; queued: number; allocated: Amounts; quota: Partial<Record<"cpus" | "gpus" | "running" | "queued", number | null>> }[];
  started: Started[];
  queued: { id: string; name: string; owner: string; position: number; created_at: number; needs: Amounts; reason: string }[];
  more: number;
}

const PAUSE_MS = 2000;
const MEASURED_MS = 10_000;

export function Queue() {
  const [answer, again] = useAnswer((signal) => ask<Queue>("queue", { signal }), []);
  useEffect(() => {
    let waiting: ReturnType<typeof setTimeout> | undefined;
    const soon = (): void => {
      waiting ??= setTimeout(() => {
        waiting = undefined;
        again();
      }, PAUSE_MS);
    };
    const clock = setInterval(() => !document.hidden && again(), MEASURED_MS);
    const leave = follow("runs", soon);
    return () => {
      leave();
      clearInterval(clock);
      clearTimeout(waiting);
    };
  }, []);
  const queue = answer.value;
  return (
    <main class="queue">
      <h1>{t("Queue")}</h1>
      {queue ? <Parts queue={queue} /> : <Pending answer={answer} />}
    </main>
  );
}

function Parts({ queue }: { queue: Queue }) {
  const { users, started, queued } = queue;
  const hasUsers = users.length > 1 || users.some(({ user }) => user);
  const isAll = users.length > 1; // others than administrators have their own row only
  const named = (owner: string): string => owner || t("service key");
  const mine = queued.filter(({ owner }) => owner === queue.user);
  return (
    <>
      <p role="status">
        {t("{n} running, {m} waiting.", { n: started.length, m: queued.length })}
        {hasUsers && mine[0] && ` ${t("Your next job, {name}:", { name: mine[0].name })} ${said(mine[0].reason)}`}
      </p>
      <Capacity queue={queue} />
      {hasUsers && !isAll && <p class="soft">{t("In use by the jobs that you can see.")}</p>}
      <h2>{t("Waiting")}</h2>
      {queued.length === 0 ? <p class="soft">{t("No job waits.")}</p> : (
        <Table name={t("Waiting")} heads={[[t("Place")], t("Job"), ...(hasUsers ? [t("User")] : []), t("Waits for"), t("Needs"), t("Since")]}>
          {queued.map((job) => (
            <tr key={job.id} class={isAll && job.owner === queue.user ? "mine" : ""}>
              <td class="number">{job.position}</td>
              <th scope="row"><JobLink job={job} /></th>
              {hasUsers && <td>{named(job.owner)}</td>}
              <td class="queue-reason">{said(job.reason)}</td>
              <td>{amounts(job.needs)}</td>
              <td><Age time={job.created_at} /></td>
            </tr>
          ))}
        </Table>
      )}
      <h2>{t("Running, by node")}</h2>
      {started.length === 0 ? <p class="soft">{t("No job runs.")}</p> : <Nodes started={started} of={queue} named={hasUsers ? named : undefined} />}
      {queue.more > 0 && <p class="soft">{t("{n} more", { n: queue.more })}</p>}
      {hasUsers && (
        <>
          <h2>{t("Shares and quotas")}</h2>
          <Table name={t("Shares and quotas")} heads={[t("User"), [t("Share")], [t("of it past use")], [t("Jobs running")], [t("Waiting")], [t("CPUs")], [t("GPUs")]]}>
            {users.map(({ user, share, past, running, queued: waiting, allocated, quota }) => (
              <tr key={user} class={isAll && user === queue.user ? "mine" : ""}>
                <th scope="row">{named(user)}</th>
                <td class="number">{percent(100 * share)}</td>
                <td class="number">{percent(100 * past)}</td>
                {([[running, quota.running], [waiting, quota.queued], [allocated.cpus, quota.cpus], [allocated.gpus, quota.gpus]] as const).map(([used, limit], at) => (
                  <td key={at} class={`number ${limit != null && used >= limit ? "warn" : ""}`}>{limit == null ? number(used) : t("{n} of {total}", { n: number(used), total: number(limit) })}</td>
                ))}
              </tr>
            ))}
          </Table>
          <p class="soft">{t("The smallest share is next.")}</p>
        </>
      )}
    </>
  );
}

function Capacity({ queue: { capacity, nodes } }: { queue: Queue }) {
  const names = { instances: t("Instances"), cpus: t("CPUs"), memory_gib: t("Memory, GiB"), gpus: t("GPUs") };
  return (
    <dl class="capacity">
      {capacity.filter(({ total, used }) => total || used).map(({ resource, total, used }) => (
        <div key={resource}>
          <dt>{names[resource]}</dt>
          <dd>
            {total == null ? number(used) : t("{n} of {total}", { n: number(used), total: number(total) })}
            {total != null && <meter aria-label={names[resource]} max={total} value={used} />}
          </dd>
        </div>
      ))}
      {nodes != null && <div><dt>{t("Nodes")}</dt><dd>{nodes}</dd></div>}
    </dl>
  );
}

/** The instances of the started jobs under their nodes; those of a job that is being prepared have none. */
function Nodes({ started, of, named }: { started: Started[]; of: Queue; named: ((owner: string) => string) | undefined }) {
  const rows = started.flatMap((job) => job.instances.map((one) => ({ job, one, node: one.node ?? "" })));
  const nodes = [...new Set(rows.map(({ node }) => node))].sort();
  const now = Date.now() / 1000;
  const hasGpus = rows.some(({ one }) => one.gpu_percent != null || one.gpu_memory_percent != null);
  const heads = [t("Job"), t("Instance"), ...(named ? [t("User")] : []), t("Status"), [t("Duration")] as const, [t("CPU %")] as const, [t("Memory")] as const, ...(hasGpus ? [[t("GPU %")] as const, [t("GPU memory %")] as const] : [])];
  return (
    <Table name={t("Running, by node")} heads={heads}>
      {nodes.map((node) => {
        const here = rows.filter((row) => row.node === node);
        return [
          <tr key={node}><th scope="rowgroup" class="node" colSpan={heads.length}>{node || t("node not known")} <span class="soft">{t("{n} {n|instance|instances}", { n: here.length })}</span></th></tr>,
          ...here.map(({ job, one }) => (
            <tr key={one.name} class={of.users.length > 1 && job.owner === of.user ? "mine" : ""}>
              <th scope="row"><JobLink job={job} /></th>
              <td>{one.name.replace(`${job.id}-`, "")}</td>
              {named && <td>{named(job.owner)}</td>}
              <td><Status status={one.status} /></td>
              <td class="number">{duration(now - job.since)}</td>
              <td class="number">{percent(one.cpu_percent, "")}</td>
              <td class="number">{bytes(one.memory_bytes)}</td>
              {hasGpus && [one.gpu_percent, one.gpu_memory_percent].map((value, at) => <td key={at} class="number">{percent(value, "")}</td>)}
            </tr>
          )),
        ];
      })}
    </Table>
  );
}

function JobLink({ job: { id, name } }: { job: { id: string; name: string } }) {
  return <a href={linkTo({ run: id })} title={id}>{name || id}</a>;
}

function percent(value: number | null | undefined, unit = " %"): string {
  return value == null ? "" : `${value.toFixed(1)}${unit}`;
}

function amounts({ instances, cpus, memory_gib, gpus }: Amounts): string {
  return [
    instances > 1 && t("{n} {n|instance|instances}", { n: instances }),
    cpus && t("{n} {n|CPU|CPUs}", { n: number(cpus) }),
    gpus && t("{n} {n|GPU|GPUs}", { n: gpus }),
    memory_gib && t("{n} GiB", { n: number(memory_gib) }),
  ].filter(Boolean).join(" · ") || t("{n} {n|instance|instances}", { n: 1 });
}

chinese({
  "Queue": "队列",
  "service key": "服务密钥",
  "{n} running, {m} waiting.": "{n} 个运行中，{m} 个排队。",
  "Your next job, {name}:": "你的下一个作业 {name}：",
  "In use by the jobs that you can see.": "由你能看到的作业占用。",
  "Waiting": "排队",
  "No job waits.": "没有作业在排队。",
  "Place": "位置",
  "Job": "作业",
  "User": "用户",
  "Needs": "需要",
  "Since": "提交于",
  "Waits for": "等待原因",
  "Running, by node": "运行中（按节点）",
  "No job runs.": "没有作业在运行。",
  "{n} more": "另有 {n} 个",
  "Shares and quotas": "份额与配额",
  "Share": "份额",
  "of it past use": "其中历史用量",
  "Jobs running": "运行",
  "CPUs": "CPU",
  "GPUs": "GPU",
  "{n} of {total}": "{n} / {total}",
  "The smallest share is next.": "份额最小的优先。",
  "Instances": "实例",
  "Memory, GiB": "内存（GiB）",
  "Nodes": "节点",
  "Instance": "实例",
  "Status": "状态",
  "Duration": "时长",
  "CPU %": "CPU %",
  "Memory": "内存",
  "GPU %": "GPU %",
  "GPU memory %": "显存 %",
  "node not known": "节点未知",
  "{n} {n|instance|instances}": "{n} 个实例",
  "{n} {n|CPU|CPUs}": "{n} CPU",
  "{n} {n|GPU|GPUs}": "{n} GPU",
  "{n} GiB": "{n} GiB",
});
