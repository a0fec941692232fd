// The schedules of a service: `#view=schedules`. A schedule is made and changed by the command line only.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { linkTo } from "../address.ts";
import { ask } from "../api.ts";
import { duration, zoned } from "../format.ts";
import { useAnswer } from "../parts/answer.ts";
import { Age, Copyable, Notice, Status } from "../parts/basics.tsx";
import { wordsOf } from "../parts/dialog.tsx";
import { Pending, Table } from "../parts/table.tsx";
import { can } from "../place.ts";
import type { RunList } from "../runs.ts";
import { chinese, t } from "../words.ts";

interface Schedule {
  ScheduleId: string;
  Name: string;
  Cron: string;
  TimeZone: string;
  Enabled: boolean;
  NextTime: string | null;
  LastTime: string | null;
  LastJobId: string | null;
  LastError: string | null;
  UserId: string;
}

interface Found {
  rows: Schedule[];
  total: number;
  statuses: ReadonlyMap<string, string | undefined>;
}

const AGAIN_MS = 5000;

async function read(signal: AbortSignal): Promise<Found> {
  const jobs = { filter: "labels.pai-sdk-schedule~schedule", sort: "-created", limit: 1000, fields: "status" };
  const [{ Schedules, TotalCount }, { runs }] = await Promise.all([
    ask<{ Schedules: Schedule[]; TotalCount: number }>("schedules", { query: { PageSize: 100 }, signal }),
    ask<RunList>("runs", { query: jobs, signal }),
  ]);
  return { rows: Schedules, total: TotalCount, statuses: new Map(runs.map((run) => [run.id, run.status])) };
}

export function Schedules() {
  const [answer, again] = useAnswer(read, []);
  const problem = useSignal("");
  useEffect(() => {
    const clock = setInterval(() => !document.hidden && again(), AGAIN_MS);
    return () => clearInterval(clock);
  }, []);
  const turn = async (row: Schedule): Promise<void> => {
    try {
      await ask(row.Enabled ? "pauseSchedule" : "resumeSchedule", { run: row.ScheduleId });
      problem.value = "";
    } catch (error) {
      problem.value = `${row.Name}: ${wordsOf(error)}`;
    }
    again();
  };
  const found = answer.value;
  return (
    <main class="pipelines">
      <h1>{t("Schedules")}</h1>
      {problem.value && <Notice kind="bad">{problem.value}</Notice>}
      {!found && <Pending answer={answer} />}
      {found && found.rows.length === 0 && (
        <>
          <p class="soft">{t("There is no schedule. The command line adds one, which creates a job each time:")}</p>
          <Copyable text={'pai-sdk schedule add job.yaml --cron "0 3 * * *" --zone Asia/Shanghai'} />
        </>
      )}
      {found && found.rows.length > 0 && (
        <Table name={t("Schedules")} heads={[t("Name"), t("State"), t("Next"), t("Last job"), t("Times"), t("Owner")]}>
          {found.rows.map((row) => (
            <tr key={row.ScheduleId}>
              <th scope="row">{row.Name}</th>
              <td>
                {row.Enabled ? t("enabled") : t("paused")}{" "}
                {can("stop") && (
                  <button aria-label={row.Enabled ? t("Pause {name}", { name: row.Name }) : t("Resume {name}", { name: row.Name })} onClick={() => void turn(row)}>
                    {row.Enabled ? t("Pause") : t("Resume")}
                  </button>
                )}
                {row.LastError && <div class="bad pipeline-reason">{row.LastError}</div>}
              </td>
              <td>{row.NextTime && <Until time={Date.parse(row.NextTime) / 1000} />}</td>
              <td>
                {row.LastJobId && <a class="mono" href={linkTo({ run: row.LastJobId })}>{row.LastJobId}</a>}{" "}
                <Status status={found.statuses.get(row.LastJobId ?? "")} />{" "}
                {row.LastTime && <span class="soft"><Age time={Date.parse(row.LastTime) / 1000} /></span>}
              </td>
              <td><code>{row.Cron}</code> <span class="soft">{row.TimeZone}</span></td>
              <td>{row.UserId}</td>
            </tr>
          ))}
        </Table>
      )}
      {found && found.total > found.rows.length && <p class="soft">{t("The first {n} are shown; the command line lists all {total}.", { n: found.rows.length, total: found.total })}</p>}
    </main>
  );
}

function Until({ time }: { time: number }) {
  return <time title={zoned(time)}>{t("in {time}", { time: duration(time - Date.now() / 1000) })}</time>;
}

chinese({
  "There is no schedule. The command line adds one, which creates a job each time:": "还没有定时任务。用命令行添加，到时即创建作业：",
  "Owner": "所有者",
  "Times": "时间",
  "Next": "下次",
  "Last job": "上次作业",
  "State": "状态",
  "enabled": "已启用",
  "paused": "已暂停",
  "Pause": "暂停",
  "Resume": "恢复",
  "Pause {name}": "暂停 {name}",
  "Resume {name}": "恢复 {name}",
  "The first {n} are shown; the command line lists all {total}.": "显示前 {n} 个；命令行会列出全部 {total} 个。",
  "in {time}": "{time}后",
});
