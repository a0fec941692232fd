// Small parts that several views use.
import { useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { age, zoned } from "../format.ts";
import { statusText } from "../service_texts.ts";
import { chinese, t } from "../words.ts";
import { roughly } from "./clock.ts";

const COPIED_MS = 2000;

const KINDS: Record<string, string> = {
  Running: "running",
  Succeed: "good",
  Failed: "bad",
  InitializeFailed: "bad",
  CreateFailed: "bad",
  Terminated: "ended",
  Terminating: "ended",
  // of pipelines and their steps
  running: "running",
  succeeded: "good",
  cached: "good",
  failed: "bad",
  stopped: "ended",
  blocked: "ended",
  interrupted: "ended",
};

/** The status of a job, a pipeline or a step, with a colour and a sign that differs too. */
export function Status({ status, place }: { status: string | undefined; place?: number | undefined }) {
  if (!status) return null;
  const kind = KINDS[status] ?? "waiting";
  return (
    <span class={`status ${kind}`} title={status}>
      {statusText(status)}
      {place !== undefined && <span class="soft"> {t("no. {n} in the queue", { n: place })}</span>}
    </span>
  );
}

/** How long ago; it counts on by itself. */
export function Age({ time }: { time: number | null | undefined }) {
  void roughly.value;
  return <time title={zoned(time)}>{age(time)}</time>;
}

/** A text with a box around it: what went wrong, or what to do. */
export function Notice({ kind = "info", children }: { kind?: "info" | "bad"; children: ComponentChildren }) {
  return <div class={`notice ${kind}`} role={kind === "bad" ? "alert" : undefined}>{children}</div>;
}

/** A command or some lines of code, with a button that copies them. */
export function Copyable({ text }: { text: string }) {
  const [isCopied, copy] = useCopy();
  return (
    <div class="copyable">
      <pre tabIndex={0}><code>{text}</code></pre>
      <button onClick={() => copy(text)}>{isCopied ? t("Copied") : t("Copy")}</button>
    </div>
  );
}

/** Copies texts; the first result is true for a moment after that. */
export function useCopy(): [boolean, (text: string) => void] {
  const [isCopied, setCopied] = useState(false);
  return [isCopied, (text) => void copyText(text).then(() => {
    setCopied(true);
    setTimeout(() => setCopied(false), COPIED_MS);
  })];
}

/** Copies a text; pages by plain HTTP of another machine have no clipboard, and use a selection. */
export async function copyText(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.body.appendChild(document.createElement("textarea"));
  area.value = text;
  area.select();
  document.execCommand("copy");
  area.remove();
}

/** Lets the browser save a content under a name. */
export function save(content: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

chinese({
  "no. {n} in the queue": "排队第 {n} 位",
  "Copied": "已复制",
  "Copy": "复制",
});
