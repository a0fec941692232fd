// What each instance uses: processors, memory, GPUs, as small curves.
import { useEffect } from "preact/hooks";
import { ask } from "../../api.ts";
import { bytes, number } from "../../format.ts";
import { chinese, t } from "../../words.ts";
import { useAnswer } from "./answer.ts";
import type { JobDetail, Usage, UsageOfInstance } from "./wire.ts";

const EVERY_MS = 5000;
const MOST_INSTANCES = 32;
const [WIDTH, HEIGHT] = [240, 40];

export function UsageOfJob({ id, job }: { id: string; job: JobDetail }) {
  const [usage, read] = useAnswer((signal) => ask<Usage>("usage", { run: id, signal }), [id], job.status);
  const isRunning = job.started_at !== null && job.ended_at === null;
  useEffect(() => {
    if (!isRunning) return undefined;
    const clock = setInterval(() => !document.hidden && read(), EVERY_MS);
    return () => clearInterval(clock);
  }, [isRunning, id]);
  const known = usage.value?.instances.filter(({ times }) => times.length > 0) ?? [];
  if (known.length === 0) return null;
  const { cpu, memory_bytes } = (usage.value as Usage).limits;
  return (
    <>
      <h2>{t("Usage")}</h2>
      <div class="usage">
        {known.slice(0, MOST_INSTANCES).map((one) => (
          <div key={one.name} class="instance">
            <h3>{one.name}</h3>
            <Spark of={one} name={t("CPU")} values={one.cpu} limit={cpu} shown={(value) => t("{n} cores", { n: number(value, 3) })} />
            <Spark of={one} name={t("Memory")} values={one.memory_bytes} limit={memory_bytes} shown={bytes} />
            <Spark of={one} name={t("GPU")} values={one.gpu} limit={100} shown={(value) => `${number(value, 3)} %`} />
            <Spark of={one} name={t("GPU memory")} values={one.gpu_memory_bytes} limit={null} shown={bytes} />
          </div>
        ))}
      </div>
      {known.length > MOST_INSTANCES && <p class="soft">{t("{n} more", { n: known.length - MOST_INSTANCES })}</p>}
    </>
  );
}

interface SparkOf {
  of: UsageOfInstance;
  name: string;
  values: (number | null)[];
  limit: number | null;
  shown: (value: number) => string;
}

function Spark({ of, name, values, limit, shown }: SparkOf) {
  const known = values.filter((value): value is number => value !== null);
  const last = known.at(-1);
  if (last === undefined) return null;
  const peak = known.reduce((most, value) => Math.max(most, value));
  const top = limit ?? (peak || 1);
  const [first = 0, end = 1] = [of.times[0], of.times.at(-1)];
  const points = values.flatMap((value, at) =>
    value === null ? [] : [`${((((of.times[at] ?? first) - first) / (end - first || 1)) * WIDTH).toFixed(1)},${(HEIGHT - Math.min(1, value / top) * HEIGHT).toFixed(1)}`],
  );
  const said = limit === null ? t("{now} now, {most} at most", { now: shown(last), most: shown(peak) }) : t("{now} now, {most} at most, of {limit}", { now: shown(last), most: shown(peak), limit: shown(limit) });
  return (
    <figure>
      <figcaption><strong>{name}</strong> <span class="soft">{said}</span></figcaption>
      <svg viewBox={`0 -1 ${WIDTH} ${HEIGHT + 2}`} preserveAspectRatio="none" aria-hidden="true">
        <polygon points={`0,${HEIGHT} ${points.join(" ")} ${WIDTH},${HEIGHT}`} />
        <polyline points={points.join(" ")} />
      </svg>
    </figure>
  );
}

chinese({
  "Usage": "资源使用",
  "CPU": "CPU",
  "Memory": "内存",
  "GPU": "GPU",
  "GPU memory": "显存",
  "{n} cores": "{n} 核",
  "{now} now, {most} at most": "当前 {now}，最高 {most}",
  "{now} now, {most} at most, of {limit}": "当前 {now}，最高 {most}，上限 {limit}",
});
