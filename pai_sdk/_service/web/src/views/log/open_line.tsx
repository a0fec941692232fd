// A line that is too long for its row, or a progress bar with the states it had: all of it, wrapped.
import { count } from "../../format.ts";
import { Copyable } from "../../parts/basics.tsx";
import { Dialog } from "../../parts/dialog.tsx";
import { plainText } from "../../parts/sgr.ts";
import { chinese, t } from "../../words.ts";
import { statesOf, visible } from "./line_text.ts";

const MOST_STATES = 2000; // the last ones

export function OpenLine({ text, number, close }: { text: string; number: number; close: () => void }) {
  const states = statesOf(text);
  const shown = states.slice(-MOST_STATES).map((state) => visible(plainText(state)));
  const title = `${t("Line {n}", { n: count(number + 1) })}${states.length > 1 ? ` · ${t("{n} states of a progress bar", { n: count(states.length) })}` : ""}`;
  return (
    <Dialog title={title} close={close}>
      <Copyable text={shown.join("\n")} />
      <div class="buttons"><button onClick={close} autofocus>{t("Close")}</button></div>
    </Dialog>
  );
}

chinese({
  "{n} states of a progress bar": "进度条的 {n} 个状态",
  "Close": "关闭",
});
