// One line of the log on the screen.
import { useMemo } from "preact/hooks";
import { bytes } from "../../format.ts";
import { coloursOf, type Style } from "../../parts/sgr.ts";
import { chinese, t } from "../../words.ts";
import type { Line } from "./feed.ts";
import { drawn, type Range } from "./line_text.ts";

interface Props {
  number: number;
  line: Line | undefined;
  digits: number;
  hits: readonly Range[] | undefined;
  isChosen: boolean;
  isHit: boolean;
  /** Lines before it are left out. */
  isGap: boolean;
  /** Its place among the instances; −1 where there is one only. */
  instance: number;
  /** Undefined without a column of times. */
  time: string | undefined;
  mark: string;
  href: string;
  choose: (number: number, extends_: boolean) => void;
  open: (line: Line) => void;
  point: ((line: Line) => void) | undefined;
}

export function Row({ number, line, digits, hits, isChosen, isHit, isGap, instance, time, mark, href, choose, open, point }: Props) {
  const key = hits?.join(";");
  const shown = useMemo(() => line && drawn(line.text, hits), [line, key]);
  const onNumber = (event: MouseEvent): void => {
    if (event.ctrlKey || event.metaKey || event.button !== 0) return;
    event.preventDefault();
    choose(number, event.shiftKey);
  };
  const kind = `${shown?.kind ?? ""} ${line?.is_match === false ? "beside" : ""} ${isGap ? "gap" : ""} ${isChosen ? "chosen" : ""} ${isHit ? "hit-line" : ""} ${line?.text.endsWith("\r") ? "drawn-over" : ""}`;
  return (
    <div class={`log-row ${kind}`} onMouseEnter={() => line && point?.(line)}>
      <a class="log-number" href={href} tabIndex={-1} style={{ width: `${digits + 2}ch` }} onClick={onNumber}>{number + 1}</a>
      {time !== undefined && <span class="log-time">{time}</span>}
      {instance >= 0 && <span class={`log-instance instance-${instance % 6}`} title={line?.instance}>{shortName(line?.instance)}</span>}
      {!line && <span class="soft">…</span>}
      {line && shown && shown.states > 1 && (
        <button class="log-open" tabIndex={-1} title={t("Show all {n} states", { n: shown.states })} onClick={() => open(line)}>↻ {shown.states}</button>
      )}
      <span class="log-text">
        {shown?.pieces.map((piece) => {
          const [look, colours] = [lookOf(piece.style), coloursOf(piece.style)];
          if (piece.isHit) return <mark class={look}>{piece.text}</mark>;
          return look || colours.color ? <span class={look} style={colours}>{piece.text}</span> : piece.text;
        })}
      </span>
      {line && shown && shown.cut > 0 && (
        <button class="log-open log-cut" tabIndex={-1} title={t("Show the whole line")} onClick={() => open(line)}>…({bytes(line.text.length)})</button>
      )}
      {mark && <span class="log-mark">◆ {mark}</span>}
    </div>
  );
}

function lookOf({ bold, faint, italic, underline, strike }: Style): string {
  return [bold && "bold", faint && "faint", italic && "italic", underline && "underline", strike && "strike"].filter(Boolean).join(" ");
}

/** What tells instances of a job apart: `worker-1` of `train-x7k2-worker-1`. */
function shortName(name: string | undefined): string {
  return name?.split("-").slice(-2).join("-") ?? "";
}

chinese({
  "Show all {n} states": "显示全部 {n} 个状态",
  "Show the whole line": "显示整行",
});
