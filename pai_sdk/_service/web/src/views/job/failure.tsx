// Why a job failed: the cause first, what to do, and the end of its log.
import { useLayoutEffect, useRef } from "preact/hooks";
import { address, linkTo } from "../../address.ts";
import { chinese, t } from "../../words.ts";
import type { Failure } from "./wire.ts";

const COLOURS = /\u001b\[[0-9;?]*[A-Za-z]/g;

export function FailureReport({ id, failure }: { id: string; failure: Failure }) {
  const short = (text: string): string => text.replaceAll(`${id}-`, ""); // of the names of instances
  const lines = failure.last_lines.join("\n");
  return (
    <section class="failure" aria-labelledby="failure-title">
      <h2 id="failure-title">{short(failure.cause)}</h2>
      {failure.explanation && <p>{short(failure.explanation)}</p>}
      {failure.advice && <p class="advice"><strong>{t("What to do")}</strong> {failure.advice}</p>}
      <p class="job-facts soft">
        {failure.instance && <span>{t("instance {name}", { name: short(failure.instance) })}</span>}
        {failure.exit_code !== null && <span>{t("exit code {n}", { n: failure.exit_code })}</span>}
        <a href={linkTo({ ...address.value, tab: "log", instance: failure.instance ?? "" })}>{t("End of the log")}</a>
      </p>
      {failure.traceback && <Lines title={t("Traceback")} text={failure.traceback} />}
      {lines && !failure.traceback && <Lines title={t("Last lines of the log")} text={lines} />}
      {lines && failure.traceback && (
        <details>
          <summary>{t("Last lines of the log")}</summary>
          <Lines title={t("Last lines of the log")} text={lines} />
        </details>
      )}
    </section>
  );
}

function Lines({ title, text }: { title: string; text: string }) {
  const box = useRef<HTMLPreElement>(null);
  useLayoutEffect(() => {
    if (box.current) box.current.scrollTop = box.current.scrollHeight; // the last line is the one that says most
  }, [text]);
  return <pre ref={box} class="lines" tabIndex={0} aria-label={title} role="region">{text.replace(COLOURS, "")}</pre>;
}

chinese({
  "What to do": "处理办法",
  "instance {name}": "实例 {name}",
  "exit code {n}": "退出码 {n}",
  "End of the log": "日志末尾",
  "Last lines of the log": "日志的最后几行",
  "Traceback": "调用栈",
});
