// The box to search a log, how many hits there are, and the way from one to the next.
import { useState } from "preact/hooks";
import type { RefObject } from "preact";
import { count } from "../../format.ts";
import { chinese, t } from "../../words.ts";
import type { LogSearch } from "./search.ts";

interface Props {
  input: RefObject<HTMLInputElement | null>;
  search: LogSearch | undefined;
  /** The hit that is shown, from 0; −1 for none. */
  number: number;
  begin: (text: string, isRegex: boolean, ignoresCase: boolean) => void;
  next: (step: number) => void;
  close: () => void;
  /** The text of a filter: only lines that have it are shown. */
  only: { text: string; isRegex: boolean; ignoresCase: boolean } | undefined;
}

export function SearchBar({ input, search, number, begin, next, close, only }: Props) {
  const [text, setText] = useState(only?.text ?? "");
  const [isRegex, setRegex] = useState(only?.isRegex ?? false);
  const [matchesCase, setMatchesCase] = useState(only ? !only.ignoresCase : false);
  const onKey = (event: KeyboardEvent): void => {
    if (event.key === "Escape") {
      setText("");
      close();
      (document.querySelector(".log-lines") as HTMLElement | null)?.focus();
    } else if (event.key === "Enter") {
      const isSame = search && search.query.text === text && search.query.isRegex === isRegex && search.query.ignoresCase === !matchesCase;
      if (isSame) next(event.shiftKey ? -1 : 1);
      else begin(text, isRegex, !matchesCase);
    }
  };
  return (
    <div class="log-search" role="search">
      <input ref={input} type="search" aria-label={t("Search the log")} placeholder={t("Search the log")} maxLength={1000} value={text} onInput={(event) => setText(event.currentTarget.value)} onKeyDown={onKey} />
      <button aria-pressed={matchesCase} aria-label={t("Match case")} title={t("Match case")} onClick={() => setMatchesCase(!matchesCase)}>Aa</button>
      <button aria-pressed={isRegex} aria-label={t("Regular expression")} title={t("Regular expression")} onClick={() => setRegex(!isRegex)}>.*</button>
      {search && (
        <>
          <button aria-label={t("Hit before")} disabled={search.count === 0} onClick={() => next(-1)}>↑</button>
          <button aria-label={t("Next hit")} disabled={search.count === 0} onClick={() => next(1)}>↓</button>
          <span class="log-count" role="status">{found(search, number)}</span>
          {search.isDone ? null : <button onClick={() => search.stop()}>{t("Stop")}</button>}
        </>
      )}
    </div>
  );
}

function found(search: LogSearch, number: number): string {
  const hits = t("{n} {n|hit|hits}", { n: count(search.count) });
  const at = number >= 0 ? t("{n} of {hits}", { n: count(number + 1), hits }) : hits;
  if (!search.isDone) return `${at} …`;
  return search.trouble ? `${at} (${t("incomplete")}: ${t(search.trouble)})` : at;
}

chinese({
  "Search the log": "搜索日志",
  "Match case": "区分大小写",
  "Regular expression": "正则表达式",
  "Hit before": "上一处",
  "Next hit": "下一处",
  "{n} {n|hit|hits}": "{n} 处匹配",
  "{n} of {hits}": "第 {n} 处，共 {hits}",
  "incomplete": "不完整",
  "Stop": "停止",
  "stopped": "已停止",
  "The service did not answer.": "服务无响应。",
});
