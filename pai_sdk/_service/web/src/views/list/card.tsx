// A job on a phone: a card instead of a row, since a table would have to be moved sideways.
import type { ComponentChildren } from "preact";
import { Age, Status } from "../../parts/basics.tsx";
import { said } from "../../service_texts.ts";
import { causeOf, type Column } from "./columns.ts";
import { progressText } from "./folded.ts";
import type { Row } from "./folding.ts";
import { Value } from "./value.tsx";

const METRICS = 2; // that a card has room for

/** What stands below the name; `columns` are those of the list. */
export function Card({ run, columns, head }: { run: Row; columns: readonly Column[]; head: ComponentChildren }) {
  const duration = columns.find(({ key }) => key === "duration");
  const cost = columns.filter(({ key, text }) => key === "cost" && text(run) !== "");
  const owner = columns.some(({ key }) => key === "owner") && run.owner;
  const metrics = columns.filter(({ key, text }) => key.startsWith("metrics.") && text(run) !== "").slice(0, METRICS);
  const others = columns.filter(({ key, text }) => /^(hparams\.|labels\.|tags$)/.test(key) && text(run) !== "").slice(0, METRICS - metrics.length);
  return (
    <>
      <div class="card-head">{head}</div>
      <div class="card-line">
        {run.group ? <span>{progressText(run.group)}</span> : <Status status={run.status} place={run.queue_place} />}
        {duration && run.started_at !== undefined && <span><Value column={duration} run={run} /></span>}
        <span class="soft"><Age time={run.created_at ?? run.updated_at} /></span>
        {owner && <span class="soft">{owner}</span>}
      </div>
      <div class="card-line" title={causeOf(run)}>
        {run.cause && <span class="bad">{causeOf(run)}</span>}
        {run.waits_for && <span class="soft">{said(run.waits_for)}</span>}
        {!run.cause && [...metrics, ...others, ...cost].map((column) => <span key={column.key}><span class="soft">{column.title}</span> <Value column={column} run={run} /></span>)}
      </div>
    </>
  );
}
