// The value of a column for a run; alone, so that a duration that counts on draws nothing else.
import type { Run } from "../../runs.ts";
import { chinese, t } from "../../words.ts";
import type { Column } from "./columns.ts";

export function Value({ column, run }: { column: Column; run: Run }) {
  const odd = column.isOdd?.(run) ? 0 : (column.oddPoints?.(run) ?? 0);
  return (
    <>
      {odd > 0 && <Warning text={t("{n} {n|value of this metric is|values of this metric are} NaN or infinite", { n: odd })} />}
      {column.text(run)}
    </>
  );
}

export function Warning({ text }: { text: string }) {
  return <span class="warn" title={text}> <span aria-hidden="true">⚠</span><span class="hidden-text">{text}</span> </span>;
}

chinese({
  "{n} {n|value of this metric is|values of this metric are} NaN or infinite": "此指标有 {n} 个值为 NaN 或无穷",
});
