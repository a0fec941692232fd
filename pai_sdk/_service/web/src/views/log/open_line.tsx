// A line that is too long for its row, or a progress bar with the states it had: all of it, wrapped.
import { useEffect, useRef } from "preact/hooks";
import { count } from "../../format.ts";
import { copyText } from "../../parts/basics.tsx";
import { plainText } from "../../parts/sgr.ts";
import { chinese, t } from "../../words.ts";
import { statesOf, visible } from "./line_text.ts";

const MOST_STATES = 2000; // the last ones

export function OpenLine({ text, number, close }: { text: string; number: number; close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => before instanceof HTMLElement && before.focus();
  }, []);
  const states = statesOf(text);
  const shown = states.slice(-MOST_STATES).map((state) => visible(plainText(state)));
  const title = `${t("Line {n}", { n: count(number + 1) })}${states.length > 1 ? ` · ${t("{n} states of a progress bar", { n: count(states.length) })}` : ""}`;
  return (
    <dialog ref={dialog} class="log-dialog" aria-label={title} onClose={close}>
      <div class="log-dialog-head">
        <h2>{title}</h2>
        <button onClick={() => void copyText(shown.join("\n"))}>{t("Copy")}</button>
        <button onClick={close} autofocus>{t("Close")}</button>
      </div>
      <pre tabIndex={0}>{shown.join("\n")}</pre>
    </dialog>
  );
}

chinese({
  "{n} states of a progress bar": "进度条的 {n} 个状态",
  "Close": "关闭",
});
