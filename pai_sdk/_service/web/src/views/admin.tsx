// The state of the service for its administrators, to look at only: `#view=admin&user=NAME&action=TEXT`.
import { useEffect, useState } from "preact/hooks";
import { change, field, linkTo } from "../address.ts";
import { ask } from "../api.ts";
import { bytes, moment, number, zoned } from "../format.ts";
import { useAnswer } from "../parts/answer.ts";
import { Age } from "../parts/basics.tsx";
import { Pending, Table } from "../parts/table.tsx";
import { chinese, t } from "../words.ts";

type Amounts = Record<"cpus" | "gpus" | "running" | "queued", number | null>;

interface User {
  name: string;
  right: string;
  keys: { id: string; created_at: number; changed_at: number | null; expires_at: number | null }[];
  quota: Amounts;
  used: Amounts;
}

interface Administration {
  users: User[];
  workspaces: { id: string; name: string; members: Record<string, string> }[];
  process: {
    host: string;
    pid: number;
    version: string;
    executor: string;
    started_at: number;
    memory_bytes: number;
    database: string;
    lease: { host: string; pid: number | null; number: number; expires_at: number } | null;
  };
  disk: { folder: string; total_bytes: number; free_bytes: number };
}

interface Entry {
  Number: number;
  Time: string;
  User: string;
  Method: string;
  Path: string;
  Status: number;
  Client: string;
  CreatedId: string;
  Expiration: string | null;
}

const PAGE = 100;
const SOON_S = 14 * 86400;
const AMOUNTS = ["cpus", "gpus", "running", "queued"] as const;
const user = field("user");
const action = field("action");

export function Admin() {
  const [answer] = useAnswer((signal) => ask<Administration>("administration", { signal }), []);
  const found = answer.value;
  return (
    <main>
      <h1>{t("Administration")}</h1>
      {found ? <State {...found} /> : <Pending answer={answer} />}
    </main>
  );
}

function State({ users, workspaces, process: own, disk }: Administration) {
  const facts: ([string, string, number?] | null)[] = [
    [t("Process"), `${own.host} ${own.pid}, pai-sdk ${own.version}, ${own.executor}, ${bytes(own.memory_bytes)}`, own.started_at],
    [t("Database"), own.database],
    own.lease && [t("Lease"), `${own.lease.number}, ${own.lease.host} ${own.lease.pid ?? ""}, ${moment(own.lease.expires_at)}`],
    [t("Disk"), t("{free} of {all} free in {folder}", { free: bytes(disk.free_bytes), all: bytes(disk.total_bytes), folder: disk.folder })],
  ];
  return (
    <>
      {users.length > 0 && <h2>{t("Users")}</h2>}
      {users.length > 0 && <Table name={t("Users")} heads={[t("User"), t("Right"), ["CPU"], ["GPU"], [t("running")], [t("queued")], t("Key"), t("Last change"), t("Key ends")]}>
        {users.map(({ name, right, keys, quota, used }) => (keys.length > 0 ? keys : [undefined]).map((key, row, each) => (
          <tr key={`${name} ${key?.id}`}>
            {row === 0 && <>
              <td rowSpan={each.length}><a href={linkTo({ q: `owner=${name}` })}>{name}</a></td>
              <td rowSpan={each.length}>{right}</td>
              {AMOUNTS.map((of) => (
                <td key={of} rowSpan={each.length} class={quota[of] !== null && (used[of] ?? 0) >= quota[of] ? "number warn" : "number"}>{number(used[of])}{quota[of] !== null && ` / ${number(quota[of])}`}</td>
              ))}
            </>}
            <td>{key && <code title={moment(key.created_at)}>{key.id}</code>}</td>
            <td class="soft"><Age time={key?.changed_at} /></td>
            <End time={key?.expires_at} />
          </tr>
        )))}
      </Table>}
      <div style={{ display: "flex", flexWrap: "wrap", gap: "0 64px" }}>
        <section style={{ minWidth: 0 }}>
          <h2>{t("Service")}</h2>
          <Table name={t("Service")} heads={[]}>
            {facts.map((fact) => fact && <tr key={fact[0]}><th scope="row">{fact[0]}</th><td>{fact[1]} {fact[2] && <span class="soft"><Age time={fact[2]} /></span>}</td></tr>)}
            <Parts />
          </Table>
        </section>
        <section style={{ minWidth: 0 }}>
          <h2>{t("Workspaces")}</h2>
          <Table name={t("Workspaces")} heads={[t("Workspaces"), t("Members")]}>
            {workspaces.map(({ id, name, members }) => (
              <tr key={id}>
                <td>{name} <span class="soft">{id}</span></td>
                <td>{Object.entries(members).map(([one, right]) => <div key={one}>{one} <span class="soft">{right}</span></div>)}</td>
              </tr>
            ))}
          </Table>
        </section>
      </div>
      <Audit />
    </>
  );
}

/** When a key ends; marked if that is soon, or over. */
function End({ time }: { time: number | null | undefined }) {
  if (!time) return <td />;
  const left = time - Date.now() / 1000;
  const date = moment(time).slice(0, 10);
  const text = left <= 0 ? t("{date}, has ended", { date }) : left < SOON_S ? t("{date}, {n} d left", { date, n: Math.ceil(left / 86400) }) : date;
  return <td class={left <= 0 ? "bad" : left < SOON_S ? "warn" : ""} title={zoned(time)}>{text}</td>;
}

/** What uses the disk; it is there later, since all files are counted. */
function Parts() {
  const [answer] = useAnswer((signal) => ask<{ parts: { kind: string; size_bytes: number; count: number | null }[] }>("disk", { signal }), []);
  if (!answer.value) return <tr><td colSpan={2}><Pending answer={answer} /></td></tr>;
  return <>{answer.value.parts.map(({ kind, size_bytes, count }) => <tr key={kind}><th scope="row">{t(kind)}</th><td>{bytes(size_bytes)} {count !== null && <span class="soft">{count}</span>}</td></tr>)}</>;
}

function Audit() {
  const [before, setBefore] = useState<number[]>([]); // of this page and those before it
  useEffect(() => setBefore([]), [user.value, action.value]); // also by the browser's way back
  const query = { User: user.value || undefined, Action: action.value || undefined, Before: before[0], PageSize: PAGE };
  const [answer] = useAnswer((signal) => ask<{ Entries: Entry[] }>("audit", { query, signal }), Object.values(query));
  const entries = answer.value?.Entries;
  const filter = (event: Event): void => {
    event.preventDefault();
    change(Object.fromEntries(new FormData(event.currentTarget as HTMLFormElement)) as Record<string, string>);
  };
  return (
    <>
      <h2>{t("Audit log")}</h2>
      <form class="buttons" onSubmit={filter}>
        <label>{t("User")} <input name="user" size={12} value={user.value} /></label>
        <label>{t("Request")} <input name="action" size={18} value={action.value} /></label>
        <button>{t("Filter")}</button>
        <button type="button" disabled={before.length === 0} onClick={() => setBefore(before.slice(1))}>{t("Newer")}</button>
        <button type="button" disabled={entries?.length !== PAGE} onClick={() => setBefore([entries?.at(-1)?.Number ?? 0, ...before])}>{t("Older")}</button>
      </form>
      {!entries ? <Pending answer={answer} /> : (
        <Table name={t("Audit log")} heads={[t("Time"), t("User"), [t("Status")], t("Request"), t("Has created"), t("From")]}>
          {entries.map((one) => (
            <tr key={one.Number}>
              <td>{moment(Date.parse(one.Time) / 1000)}</td>
              <td>{one.User || t("the service itself")}</td>
              <td class={one.Status >= 400 ? "number bad" : "number"}>{one.Status}</td>
              <td class="mono">{one.Method} {one.Path}</td>
              <td class="mono">{one.CreatedId} {one.Expiration && <span class="soft">{t("until {date}", { date: zoned(Date.parse(one.Expiration) / 1000) })}</span>}</td>
              <td class="soft">{one.Client}</td>
            </tr>
          ))}
        </Table>
      )}
    </>
  );
}

chinese({
  "Administration": "管理",
  "Users": "用户",
  "User": "用户",
  "Right": "权限",
  "running": "运行中",
  "queued": "排队中",
  "Key": "密钥",
  "Last change": "最近更改",
  "Key ends": "密钥到期",
  "{date}, has ended": "{date}，已到期",
  "{date}, {n} d left": "{date}，剩 {n} 天",
  "until {date}": "至 {date}",
  "Workspaces": "工作空间",
  "Members": "成员",
  "Service": "服务",
  "Process": "进程",
  "Database": "数据库",
  "Lease": "租约",
  "Disk": "磁盘",
  "{free} of {all} free in {folder}": "{folder} 可用 {free}，共 {all}",
  "Audit log": "审计日志",
  "Request": "请求",
  "Filter": "筛选",
  "Newer": "较新",
  "Older": "较旧",
  "Time": "时间",
  "Status": "状态",
  "Has created": "创建了",
  "From": "来源",
  "the service itself": "服务本身",
  "objects": "对象",
  "job folders": "作业文件夹",
  "logs": "日志",
  "environments": "环境",
  "pip cache": "pip 缓存",
  "tables": "表",
  "service": "服务",
});
