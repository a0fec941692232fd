// Charts of some metrics of one run, with what happened to it as marks; a zoom is that of all of them.
import { useMemo, useState } from "preact/hooks";
import { askColumns } from "../../api.ts";
import { colourOf } from "../../colours.ts";
import { count, zoned } from "../../format.ts";
import { useAnswer } from "../../parts/answer.ts";
import { Chart, MarkList, type Curve, type Mark as ChartMark, type Range } from "../../parts/chart.tsx";
import { Pending } from "../../parts/table.tsx";
import { FAILED } from "../../statuses.ts";
import { chinese, t } from "../../words.ts";
import { readAnswers } from "../compared.ts";
import type { JobDetail, Mark, RunDetail } from "./wire.ts";

const BUCKETS = 300;

interface ChartsOf {
  run: RunDetail;
  tags: readonly string[]; // 50 at most
  job?: JobDetail | null;
  marks?: readonly Mark[];
  x?: "wall" | "step";
  smooth?: number;
  height?: number;
  cursorGroup?: string;
  onPick?: (x: number) => void;
  listsMarks?: boolean; // below the charts; false for all but the last of several blocks of charts
}

export function Charts({ run, tags, job, marks = [], x = "wall", smooth = 0, height = 180, cursorGroup = "job", onPick, listsMarks = true }: ChartsOf) {
  const [zoom, setZoom] = useState<Range>();
  const names = { label: (tag: string) => tag, colour: () => colourOf(run.id) };
  const [answer] = useAnswer(
    async (signal) => {
      const range = zoom ? { from: zoom[0], to: zoom[1] } : {};
      const body = { runs: [run.id], tags, x, buckets: BUCKETS, smooth, last: true, precision: "double", ...range };
      return readAnswers(await askColumns("compare", { body, signal }), names);
    },
    [run.id, tags, x],
    `${run.v} ${zoom} ${smooth}`,
  );
  // All marks once, below the charts: those of one metric too.
  const listed = useMemo(() => chartMarks(marks, undefined, x), [marks, x]);
  if (answer.refusal) return <Pending answer={answer} />;
  return (
    <div class="charts">
      {tags.map((tag) => {
        const found = answer.value?.find((one) => one.tag === tag);
        return (
          <OneChart
            key={tag}
            tag={tag}
            curves={found?.curves ?? NONE}
            summary={found ? summaryOf(found) : t("Loading …")}
            marks={marks}
            whole={x === "wall" ? job : undefined}
            x={x}
            zoom={zoom}
            setZoom={setZoom}
            height={height}
            cursorGroup={cursorGroup}
            onPick={onPick}
          />
        );
      })}
      {listsMarks && <MarkList marks={listed} isTime={x === "wall"} />}
    </div>
  );
}

const NONE: Curve[] = [];

interface OneChartOf {
  tag: string;
  curves: Curve[];
  summary: string;
  marks: readonly Mark[];
  whole: JobDetail | null | undefined;
  x: "wall" | "step";
  zoom: Range | undefined;
  setZoom: (zoom: Range | undefined) => void;
  height: number;
  cursorGroup: string;
  onPick: ((x: number) => void) | undefined;
}

function OneChart({ tag, curves, summary, marks, whole, x, zoom, setZoom, height, cursorGroup, onPick }: OneChartOf) {
  const shown = useMemo(() => chartMarks(marks, tag, x), [marks, tag, x]);
  const view = zoom ?? rangeWith(curves, whole);
  return (
    <figure class="one-chart">
      <figcaption>{tag} <span class="soft">{summary}</span></figcaption>
      <Chart
        title={tag}
        curves={curves}
        summary={summary}
        height={height}
        isTime={x === "wall"}
        {...(x === "wall" ? { xText: zoned } : {})}
        view={view}
        marks={shown}
        cursorGroup={cursorGroup}
        onZoom={setZoom}
        {...(onPick ? { onPick } : {})}
      />
    </figure>
  );
}

function summaryOf({ points, shown, isExact, nan, inf }: { points: number; shown: number; isExact: boolean; nan: number; inf: number }): string {
  const odd = nan + inf > 0 ? ` · ${t("{n} not finite", { n: count(nan + inf) })}` : "";
  return (isExact ? t("all {n} {n|point|points}", { n: count(points) }) : t("{n} of {total} points, extremes exact", { n: count(shown), total: count(points) })) + odd;
}

/** The marks as a chart has them; of the values that are not finite those of its own metric, or all without one. */
function chartMarks(marks: readonly Mark[], tag: string | undefined, x: "wall" | "step"): ChartMark[] {
  return marks.flatMap((mark): ChartMark[] => {
    const place = x === "wall" ? mark.time : mark.step;
    if (place === null || (mark.kind === "not_finite" && tag !== undefined && !mark.text.startsWith(`${tag} is `))) return [];
    if (mark.kind === "checkpoint") return [{ x: place, kind: "good", text: mark.text, sign: "◆" }];
    if (mark.kind === "not_finite") return [{ x: place, kind: "bad", text: mark.text }];
    if (mark.kind === "event") return [{ x: place, kind: "info", text: mark.text, sign: "▪" }];
    return [{ x: place, kind: FAILED.has(mark.text) ? "bad" : mark.text === "Succeed" ? "good" : "info", text: mark.text, sign: "●" }];
  });
}

// From the start of the job to its end, so that the marks of both can be seen; the points may begin later.
function rangeWith(curves: readonly Curve[], job: JobDetail | null | undefined): Range | undefined {
  const { x } = curves[0] ?? { x: [] };
  const [first, last] = [x[0], x[x.length - 1]];
  if (!job || first === undefined || last === undefined) return undefined;
  const ended = job.ended_at === null ? last : Math.max(job.ended_at, job.history.at(-1)?.time ?? last); // the status comes a moment later
  const [start, end] = [Math.min(first, job.started_at ?? first), Math.max(last, ended)];
  const margin = (end - start) * 0.02;
  return start < end ? [start - margin, end + margin] : undefined;
}

chinese({
  "all {n} {n|point|points}": "全部 {n} 个点",
  "{n} of {total} points, extremes exact": "{total} 个点中的 {n} 个，极值精确",
});
