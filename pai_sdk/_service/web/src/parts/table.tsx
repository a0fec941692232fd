// Parts that several views share: a table that scrolls sideways, and what is shown until there is something.
import type { ComponentChildren } from "preact";
import { Notice } from "./basics.tsx";
import { chinese, t } from "../words.ts";
import type { Answer } from "./answer.ts";

interface TableOf {
  name: string;
  /** The heads of the columns; that of a column of numbers is in a list. */
  heads: readonly (string | readonly [string])[];
  kind?: string;
  children: ComponentChildren;
}

export function Table({ name, heads, kind, children }: TableOf) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={name}>
      <table class={kind}>
        <thead>
          <tr>{heads.map((head, at) => <th key={at} scope="col" class={typeof head === "string" ? "" : "number"}>{head}</th>)}</tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

/** That an answer is awaited, or why there is none. */
export function Pending({ answer }: { answer: Answer<unknown> }) {
  if (answer.refusal) return <Notice kind={answer.refusal.status === 404 ? "info" : "bad"}>{answer.refusal.message}</Notice>;
  return <p class="soft" aria-live="polite">{answer.isLost ? t("The service does not respond; trying again.") : t("Loading …")}</p>;
}

chinese({
  "The service does not respond; trying again.": "服务没有响应，正在重试。",
  "Loading …": "加载中…",
});
