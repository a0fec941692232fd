// How far a search or a run of a pipeline is, in one line.
import { chinese, t } from "../../words.ts";
import type { Group } from "./folding.ts";

export function progressText({ counts, total }: Group): string {
  const { done, running, failed, stopped, pruned, waiting } = counts;
  return [
    t("{n} of {total} done", { n: done, total }),
    ...(running ? [t("{n} running", { n: running })] : []),
    ...(waiting ? [t("{n} waiting", { n: waiting })] : []),
    ...(failed ? [t("{n} failed", { n: failed })] : []),
    ...(stopped ? [t("{n} stopped", { n: stopped })] : []),
    ...(pruned ? [t("{n} pruned", { n: pruned })] : []),
  ].join(", ");
}

chinese({
  "{n} of {total} done": "已完成 {n}/{total}",
  "{n} running": "{n} 个运行中",
  "{n} waiting": "{n} 个等待中",
  "{n} failed": "{n} 个失败",
  "{n} stopped": "{n} 个已停止",
  "{n} pruned": "{n} 个被剪枝",
});
