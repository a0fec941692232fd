// What happened to a job: statuses, events, checkpoints and the first values that are not finite, the newest last.
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { address, linkTo } from "../../address.ts";
import { count, duration, moment, zoned } from "../../format.ts";
import { Status } from "../../parts/basics.tsx";
import { said, statusText } from "../../service_texts.ts";
import { chinese, t } from "../../words.ts";
import { rowsOf, sentenceOf, type Row } from "./happened.ts";
import type { JobDetail, Mark } from "./wire.ts";

const AT_ONCE = 50;
const SIGNS: Record<Mark["kind"], string> = { status: "", event: "▪", checkpoint: "◆", not_finite: "✕" };

export function Events({ id, marks, job }: { id: string; marks: Mark[]; job: JobDetail | null }) {
  const rows = useMemo(() => rowsOf(marks, id), [marks, id]);
  if (rows.length === 0 && !job) return null;
  return (
    <section class="happened">
      <h2>{t("What happened")}</h2>
      {job && <Phases job={job} />}
      <Rows rows={rows} name={t("What happened")} />
    </section>
  );
}

/** Rows in a box that is at its end until somebody scrolls up; earlier ones come by a button. */
function Rows({ rows, name }: { rows: readonly Row[]; name: string }) {
  const [most, setMost] = useState(AT_ONCE);
  const box = useRef<HTMLOListElement>(null);
  const isAtEnd = useRef(true);
  useLayoutEffect(() => {
    if (box.current && isAtEnd.current) box.current.scrollTop = box.current.scrollHeight;
  }, [rows.length, rows.at(-1)?.time]);
  const shown = rows.slice(-most);
  let day = dayOf(Date.now() / 1000);
  const isNewDay = ({ time }: Row): boolean => time !== null && day !== (day = dayOf(time));
  return (
    <>
      {rows.length > most && <button onClick={() => setMost(most + AT_ONCE)}>{t("{n} earlier", { n: count(rows.length - most) })}</button>}
      <ol
        ref={box}
        tabIndex={0}
        aria-label={name}
        onScroll={({ currentTarget: one }) => (isAtEnd.current = one.scrollHeight - one.scrollTop - one.clientHeight < 8)}
      >
        {shown.flatMap((row, at) => [
          isNewDay(row) && <li key={day} class="soft">{day}</li>,
          <OneRow key={rows.length - shown.length + at} row={row} />,
        ])}
      </ol>
    </>
  );
}

function OneRow({ row: { kind, status, text, time, step, earlier } }: { row: Row }) {
  const [first, rest] = sentenceOf(said(text));
  return (
    <li data-kind={kind}>
      <span class="time">
        {time !== null && <a href={linkTo({ ...address.value, tab: "log", time: time.toFixed(3) })} title={t("The log at {time}", { time: zoned(time) })}>{moment(time).slice(11)}</a>}
      </span>
      <span class="sign" aria-hidden="true">{SIGNS[kind]}</span>
      <div>
        {status && <><Status status={status} /> </>}
        {rest ? <details class="more"><summary>{first}</summary>{rest}</details> : <span class={status && "soft"}>{first}</span>}
        {step !== null && kind !== "checkpoint" && <span class="soft"> {t("step {n}", { n: count(step) })}</span>}
        {earlier.length > 0 && (
          <details>
            <summary title={t("Show all of it")}>×{count(earlier.length + 1)}</summary>
            <Rows rows={earlier.map((mark) => ({ ...mark, status: "", earlier: [] }))} name={first} />
          </details>
        )}
      </div>
    </li>
  );
}

function dayOf(time: number): string {
  return moment(time).slice(0, 10);
}

/** The statuses as a bar, each as long as it lasted. */
function Phases({ job }: { job: JobDetail }) {
  const end = job.ended_at ?? Date.now() / 1000;
  const lengths = job.history.map((phase, at) => Math.max(0, (job.history[at + 1]?.time ?? end) - phase.time));
  const said = job.history.map((phase, at) => `${statusText(phase.status)} ${duration(lengths[at] ?? 0)}`);
  if (!lengths.some((length) => length > 0)) return null;
  return (
    <div class="phases" role="img" aria-label={said.join(", ")}>
      {job.history.map((phase, at) => (
        (lengths[at] ?? 0) > 0 && <span key={at} class={phase.status} title={said[at]} style={{ flexGrow: lengths[at] ?? 0 }} />
      ))}
    </div>
  );
}

chinese({
  "What happened": "经过",
  "{n} earlier": "更早的 {n} 条",
  "step {n}": "第 {n} 步",
  "The log at {time}": "{time} 的日志",
});
