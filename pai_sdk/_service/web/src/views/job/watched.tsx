// The rules that watch a job, with what they have observed: open findings first, each with its evidence.
import { duration, number } from "../../format.ts";
import { Age, Notice } from "../../parts/basics.tsx";
import { said } from "../../service_texts.ts";
import { chinese, t } from "../../words.ts";
import type { Finding, Rule } from "./wire.ts";

const MOST_PAST = 10;

const waitsFor = (): Record<string, string> => ({
  NoProgress: t("no sign of progress"),
  OddRank: t("a rank that the others wait for"),
  ProcessStopped: t("a stopped process"),
  NonFiniteMetric: t("a metric that is not finite"),
  MetricJump: t("a loss that jumps"),
  IdleGpu: t("idle GPUs"),
  IdleCpu: t("idle CPUs and disks"),
  DiskNearlyFull: t("a nearly full disk"),
  LateEnd: t("an end that is too late or too dear"),
});

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
      <details>
        <summary>{t("{n} {n|rule watches|rules watch} this job", { n: rules.length })}</summary>
        <dl class="rules">
          {rules.map(({ code, action, settings }) => [
            <dt key={code}>{code}</dt>,
            <dd key={`${code} waits`}>{waitsFor()[code]} <span class="mono">{[...Object.entries(settings), ["action", action]].filter(([, value]) => value !== null && String(value)).map(([name, value]) => `${name}=${value}`).join(" ")}</span></dd>,
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
        <Age time={since} />
        {cleared && ` · ${t("cleared after {time}", { time: duration(cleared - since) })}`}
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
  "no sign of progress": "没有进展",
  "a rank that the others wait for": "其他进程都在等待的 rank",
  "a stopped process": "被停止的进程",
  "a metric that is not finite": "非有限的指标",
  "a loss that jumps": "突然跳高的损失",
  "idle GPUs": "空闲的 GPU",
  "idle CPUs and disks": "空闲的 CPU 和磁盘",
  "a nearly full disk": "快满的磁盘",
  "an end that is too late or too dear": "超时或超预算",
  "Watched": "监视",
  "{n} {n|rule watches|rules watch} this job": "{n} 条规则监视此作业",
  "cleared after {time}": "{time} 后解除",
  "Evidence": "依据",
});
