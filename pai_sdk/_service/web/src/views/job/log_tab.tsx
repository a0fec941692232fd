// The log, with the curve of one metric beside it. A click on the curve leads to the line of that time; the line under
// the cursor is where the curve's cursor is.
import { useMemo } from "preact/hooks";
import { change, field } from "../../address.ts";
import { cursor } from "../../parts/chart.tsx";
import { chinese, t } from "../../words.ts";
import { Log } from "../log.tsx";
import { Charts } from "./charts.tsx";
import { mainTags, useMarks } from "./marks.ts";
import type { JobDetail, RunDetail } from "./wire.ts";

const GROUP = "log";
const BESIDE = 3; // charts on wide screens; others show the first one
const time = field("time");
const metric = field("metric");

export function LogTab({ run, job }: { run: RunDetail; job: JobDetail | null }) {
  const marks = useMarks(run, job);
  const tags = mainTags(run, Infinity);
  const tag = tags.includes(metric.value) ? metric.value : tags[0];
  const timed = useMemo(() => marks.flatMap(({ time: at, text }) => (at === null ? [] : [{ time: at, text }])), [marks]);
  const charts = useMemo(() => (tag ? [tag, ...tags.filter((name) => name !== tag)].slice(0, BESIDE) : []), [tag, tags.length]);
  const wanted = Number(time.value);
  return (
    <div class={tag ? "log-tab" : ""}>
      {tag && (
        <div>
          <label>
            {t("Metric")}
            <select value={tag} onChange={(event) => change({ metric: event.currentTarget.value }, { replace: true })}>
              {tags.map((name) => <option key={name} value={name}>{name}</option>)}
            </select>
          </label>
          <Charts run={run} job={job} tags={charts} marks={marks} height={144} cursorGroup={GROUP} onPick={(x) => change({ time: x.toFixed(3), line: "" }, { replace: true })} />
          <p class="soft hint">{t("A click on the curve shows its place in the log.")}</p>
        </div>
      )}
      <Log
        run={run.id}
        status={job?.status ?? run.status}
        marks={timed}
        {...(time.value && Number.isFinite(wanted) ? { time: wanted } : {})}
        onLine={(line) => (cursor.value = line?.time ? { x: line.time, group: GROUP } : undefined)}
      />
    </div>
  );
}

chinese({
  "A click on the curve shows its place in the log.": "点击曲线可跳到日志中的对应位置。",
});
