// The rows of the list as the address has them folded (`fold=-` shows all, `open=study:ID` opens one), and their texts.
import { computed } from "@preact/signals";
import { address, change, field, linkTo } from "../../address.ts";
import { list } from "../../runs.ts";
import { chinese, t } from "../../words.ts";
import { fold, type Group, type Row } from "./folding.ts";

const open = field("open");
const foldField = field("fold");
const openKeys = computed(() => new Set(open.value ? open.value.split(",").map(decodeURIComponent) : []));
const groups = computed<readonly Row[]>(() => fold(list.value?.runs ?? [], list.value?.tags ?? [], openKeys.value));

export const isFolded = computed(() => foldField.value !== "-");
export const canFold = computed(() => groups.value.some(({ group }) => group));
export const rows = computed<readonly Row[]>(() => (isFolded.value ? groups.value : (list.value?.runs ?? [])));

export function isOpen({ key }: Group): boolean {
  return openKeys.value.has(key);
}

export function setOpen({ key }: Group, wanted: boolean): void {
  const others = [...openKeys.value].filter((one) => one !== key);
  change({ open: [...others, ...(wanted ? [key] : [])].map((one) => one.replace(/[,%]/g, encodeURIComponent)).join(",") }, { replace: true });
}

/** The ids of the jobs that a row stands for. */
export function idsOf(row: Row): readonly string[] {
  return row.group?.all ?? [row.id];
}

/** The address of what a row leads to; the way back leads to the same list. */
export function placeOf({ id, group }: Row): Record<string, string> {
  const { run: _run, tab: _tab, line: _line, ...kept } = address.value;
  if (!group) return { ...kept, run: id };
  return group.isStudy ? { ...kept, view: "study", study: group.id } : { ...kept, view: "pipelines", pipeline: group.id };
}

export function linkOf(row: Row): string {
  return linkTo(placeOf(row));
}

export function progressText({ counts, total }: Group): string {
  const { done, running, failed, stopped, pruned, waiting } = counts;
  return [
    t("{n} of {total} done", { n: done, total }),
    ...(running ? [t("{n} running", { n: running })] : []),
    ...(waiting ? [t("{n} waiting", { n: waiting })] : []),
    ...(failed ? [t("{n} failed", { n: failed })] : []),
    ...(stopped ? [t("{n} stopped", { n: stopped })] : []),
    ...(pruned ? [t("{n} pruned", { n: pruned })] : []),
  ].join(t(", "));
}

chinese({
  ", ": "，",
  "{n} of {total} done": "已完成 {n}/{total}",
  "{n} running": "{n} 个运行中",
  "{n} waiting": "{n} 个等待中",
  "{n} failed": "{n} 个失败",
  "{n} stopped": "{n} 个已停止",
  "{n} pruned": "{n} 个被剪枝",
});
