// The rules that watch a job, with what they have observed: open findings first, each with its evidence.
import { duration, moment, number } from "../../format.ts";
import { Age, Notice } from "../../parts/basics.tsx";
import { said } from "../../service_texts.ts";
import { chinese, t } from "../../words.ts";
import type { Finding, Rule } from "./wire.ts";

const MOST_PAST = 10;

type Settings = Record<string, any>;

// What each rule waits for, with its limits.
const WAITS_FOR: Record<string, (settings: Settings) => string> = {
  NoProgress: ({ min_s }) => t("no line, metric or step for {time}, or longer by the job's own pace", { time: duration(min_s) }),
  OddRank: ({ slow_factor }) => t("a rank that all others wait for, or steps {n} times as slow", { n: slow_factor }),
  ProcessStopped: ({ min_s }) => t("a process that a signal stops for {time}", { time: duration(min_s) }),
  NonFiniteMetric: ({ points }) => t("a metric that is NaN or infinite, {n} times in a row", { n: points }),
  MetricJump: ({ points }) => t("a loss far above its recent values, {n} times in a row", { n: points }),
  IdleGpu: ({ minutes, percent }) => t("GPUs used less than {n} % for {time}", { n: percent, time: duration(60 * minutes) }),
  IdleCpu: ({ minutes, percent }) => t("CPUs used less than {n} % of a core for {time}", { n: percent, time: duration(60 * minutes) }),
  DiskNearlyFull: ({ percent, free_gib }) => t("a disk that is {n} % full, with less than {size} GiB free", { n: percent, size: free_gib }),
  LateEnd: () => t("a progress by which the job exceeds its time or its budget"),
};

export function Watched({ rules }: { rules: Rule[] | undefined }) {
  if (!rules?.length) return null;
  const findings = rules.flatMap(({ code, findings }) => findings.map((finding) => ({ code, finding })));
  const open = findings.filter(({ finding }) => finding.is_open);
  const past = findings.filter(({ finding }) => !finding.is_open).sort((first, second) => second.finding.since - first.finding.since).slice(0, MOST_PAST);
  return (
    <section class="watched">
      <h2>{t("Watched")}</h2>
      {open.map(({ code, finding }) => <Notice key={`${code}${finding.since}`} kind="bad"><One code={code} finding={finding} isOpen /></Notice>)}
      {past.map(({ code, finding }) => <Notice key={`${code}${finding.since}`}><One code={code} finding={finding} /></Notice>)}
      <details open={findings.length === 0}>
        <summary>{t("{n} rules watch this job", { n: rules.length })}</summary>
        <dl class="rules">
          {rules.map(({ code, action, settings }) => [
            <dt key={code}>{code}</dt>,
            <dd key={`${code} waits`}>{WAITS_FOR[code]?.(settings)}{action !== "observe" && action !== "notify" && <strong> → {action}</strong>}</dd>,
          ])}
        </dl>
      </details>
    </section>
  );
}

function One({ code, finding, isOpen = false }: { code: string; finding: Finding; isOpen?: boolean }) {
  const { message, instance, since, cleared_at: cleared, lines, stack, points, values } = finding;
  const evidence = [...Object.entries(values).map(([name, value]) => `${name} = ${typeof value === "number" ? number(value) : value}`), ...stack];
  const curve = points.map(([step, value]) => `${step ?? "?"}: ${typeof value === "number" ? number(value) : value}`).join("  ");
  return (
    <>
      <strong>{code}</strong> {said(message)}
      <div class="soft">
        {instance && `${instance} · `}
        {isOpen ? t("since") : ""} <Age time={since} />
        {!isOpen && ` · ${cleared ? t("cleared after {time}", { time: duration(cleared - since) }) : t("until the end")}`}
        {!isOpen && <span class="hidden-text">{moment(since)}</span>}
      </div>
      {(evidence.length > 0 || lines.length > 0 || curve) && (
        <details open={isOpen}>
          <summary>{t("Evidence")}</summary>
          {[evidence.join("\n"), curve, lines.join("\n")].filter(Boolean).map((text, at) => <pre key={at} class="lines" tabIndex={0}>{text}</pre>)}
        </details>
      )}
    </>
  );
}

chinese({
  "no line, metric or step for {time}, or longer by the job's own pace": "{time} 内没有新的日志行、指标或步骤（或按作业自身节奏更久）",
  "a rank that all others wait for, or steps {n} times as slow": "其他进程都在等待的某个 rank，或步骤慢了 {n} 倍",
  "a process that a signal stops for {time}": "进程被信号停止 {time}",
  "a metric that is NaN or infinite, {n} times in a row": "指标连续 {n} 次为 NaN 或无穷",
  "a loss far above its recent values, {n} times in a row": "损失连续 {n} 次远高于近期值",
  "GPUs used less than {n} % for {time}": "GPU 使用率在 {time} 内低于 {n} %",
  "CPUs used less than {n} % of a core for {time}": "CPU 使用率在 {time} 内低于单核的 {n} %",
  "a disk that is {n} % full, with less than {size} GiB free": "磁盘已用 {n} %，且剩余不足 {size} GiB",
  "a progress by which the job exceeds its time or its budget": "按进度将超出时限或预算",
  "Watched": "监视",
  "{n} rules watch this job": "{n} 条规则监视此作业",
  "since": "始于",
  "cleared after {time}": "{time} 后解除",
  "until the end": "直到结束",
  "Evidence": "依据",
});
