// What the instances use: processors, memory, GPUs; a chart each, with a curve for each instance.
import { useEffect, useMemo } from "preact/hooks";
import { ask } from "../../api.ts";
import { colourOf } from "../../colours.ts";
import { number, zoned } from "../../format.ts";
import { useAnswer } from "../../parts/answer.ts";
import { Chart, type Curve } from "../../parts/chart.tsx";
import { chinese, t } from "../../words.ts";
import type { JobDetail, Usage, UsageOfInstance } from "./wire.ts";

const EVERY_MS = 5000;
const GIGA = 1e9;
type Column = Exclude<keyof UsageOfInstance, "name" | "times">;

export function UsageOfJob({ id, job }: { id: string; job: JobDetail }) {
  const [usage, read] = useAnswer((signal) => ask<Usage>("usage", { run: id, signal }), [id], job.status);
  const isRunning = job.started_at !== null && job.ended_at === null;
  useEffect(() => {
    if (!isRunning) return undefined;
    const clock = setInterval(() => !document.hidden && read(), EVERY_MS);
    return () => clearInterval(clock);
  }, [isRunning, id]);
  if (!usage.value?.instances.some(({ times }) => times.length > 0)) return null;
  const { instances, limits } = usage.value;
  return (
    <>
      <h2>{t("Usage of the instances")}</h2>
      <div class="charts">
        <Used title={t("CPU, cores")} of={instances} column="cpu" limit={limits.cpu} />
        <Used title={t("Memory, GB")} of={instances} column="memory_bytes" unit={GIGA} limit={limits.memory_bytes} />
        <Used title={t("GPU, %")} of={instances} column="gpu" limit={null} />
        <Used title={t("GPU memory, %")} of={instances} column="gpu_memory" limit={null} />
      </div>
    </>
  );
}

interface UsedOf {
  title: string;
  of: readonly UsageOfInstance[];
  column: Column;
  unit?: number;
  limit: number | null;
}

function Used({ title, of, column, unit = 1, limit }: UsedOf) {
  const curves = useMemo(() => of.flatMap((one) => curveOf(one, column, unit)), [of]);
  if (curves.length === 0) return null;
  const most = curves.reduce((peak, { values = [] }) => Math.max(peak, ...Array.from(values).filter((value) => !Number.isNaN(value))), 0);
  const said = limit === null ? t("{most} at most", { most: number(most, 3) }) : t("{most} at most, of {limit}", { most: number(most, 3), limit: number(limit / unit, 3) });
  return (
    <figure class="one-chart">
      <figcaption>{title} <span class="soft">{said}</span></figcaption>
      <Chart title={title} curves={curves} summary={said} height={120} isTime xText={zoned} cursorGroup="job" />
    </figure>
  );
}

function curveOf({ name, times, ...columns }: UsageOfInstance, column: Column, unit: number): Curve[] {
  const values = columns[column];
  if (!values.some((value) => value !== null)) return [];
  return [{ name, label: name, colour: colourOf(name), x: times, values: values.map((value) => (value === null ? Number.NaN : value / unit)) }];
}

chinese({
  "Usage of the instances": "实例资源使用",
  "CPU, cores": "CPU（核）",
  "Memory, GB": "内存（GB）",
  "GPU, %": "GPU（%）",
  "GPU memory, %": "显存（%）",
  "{most} at most": "最高 {most}",
  "{most} at most, of {limit}": "最高 {most}，上限 {limit}",
});
