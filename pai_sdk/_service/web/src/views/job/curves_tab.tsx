// All metrics of one run, some at a time.
import { useMemo, useState } from "preact/hooks";
import { change, field } from "../../address.ts";
import { can } from "../../place.ts";
import { chinese, t } from "../../words.ts";
import { filteredTags } from "../compared.ts";
import { KINDS, type Kind } from "../media/media_data.ts";
import { MediaOf } from "../media.tsx";
import { smooth, words } from "../curve_state.ts";
import { Charts } from "./charts.tsx";
import { useMarks } from "./marks.ts";
import type { JobDetail, RunDetail } from "./wire.ts";

const AT_ONCE = 24;
const axis = field("x", "step");

export function CurvesTab({ run, job }: { run: RunDetail; job: JobDetail | null }) {
  const marks = useMarks(run, job);
  const runs = useMemo(() => [run], [run]);
  const [groups, setGroups] = useState(1);
  const all = run.tags.filter(({ kind }) => kind === "scalar").map(({ tag }) => tag);
  const tags = filteredTags(all, words.value);
  const parts = Array.from({ length: Math.min(groups, Math.ceil(tags.length / AT_ONCE)) }, (_, at) => tags.slice(at * AT_ONCE, (at + 1) * AT_ONCE));
  const set = (name: string) => (event: { currentTarget: { value: string } }) => change({ [name]: event.currentTarget.value }, { replace: true });
  return (
    <>
      <div class="job-bar" hidden={all.length === 0}>
        <label>
          {t("Metrics")}
          <input type="search" value={words.value} placeholder={t("part of a name")} onInput={set("tags")} />
        </label>
        <label>
          {t("x axis")}
          <select value={axis.value === "wall" ? "wall" : "step"} onChange={(event) => change({ x: event.currentTarget.value === "wall" ? "wall" : "" }, { replace: true })}>
            <option value="step">{t("Step")}</option>
            <option value="wall">{t("Time of day")}</option>
          </select>
        </label>
        <label>
          {t("Smoothing")}
          <input type="range" min="0" max="0.99" step="0.01" value={smooth.value} onInput={set("smooth")} />
          <output>{smooth.value}</output>
        </label>
      </div>
      {parts.map((part, at) => (
        <Charts key={part.join()} run={run} job={job} tags={part} marks={marks} x={axis.value === "wall" ? "wall" : "step"} smooth={smooth.value} listsMarks={at === parts.length - 1} />
      ))}
      {tags.length === 0 && <p class="soft">{all.length > 0 ? t("No metric has these words.") : t("This {run} has no metrics yet.")}</p>}
      {groups * AT_ONCE < tags.length && <button onClick={() => setGroups(groups + 1)}>{t("{n} more", { n: tags.length - groups * AT_ONCE })}</button>}
      {can("media") && run.tags.some(({ kind }) => KINDS.includes(kind as Kind)) && (
        <>
          <h2>{t("Media")}</h2>
          <MediaOf runs={runs} />
        </>
      )}
    </>
  );
}

chinese({
  "Smoothing": "平滑",
  "No metric has these words.": "没有包含这些词的指标。",
  "This {run} has no metrics yet.": "此{run}还没有指标。",
});
