// What can be done with the runs that are picked: compare them, stop or delete their jobs.
import { useSignal } from "@preact/signals";
import { address, linkTo } from "../../address.ts";
import { ask } from "../../api.ts";
import { Notice } from "../../parts/basics.tsx";
import { Bell } from "../../parts/bell.tsx";
import { Dialog, wordsOf } from "../../parts/dialog.tsx";
import { about, can } from "../../place.ts";
import { isPart, list, names, pick, picked, readList, shown } from "../../runs.ts";
import { chinese, t } from "../../words.ts";
import { AnnotatePicked } from "./annotations.tsx";
import { isOver } from "./columns.ts";

type Action = "stop" | "remove";

const AT_ONCE = 4; // requests; a browser opens six connections, and one of them is the event stream
const MOST_NAMES = 10; // in the question

export function Picked() {
  const asked = useSignal<Action | undefined>(undefined);
  const left = useSignal(0);
  const problems = useSignal<string[]>([]);
  const hidden = isPart.value ? 0 : picked.value.length - shown.value.length;
  const changeable = changeableOf(picked.value);
  const running = runningOf(changeable);
  const foreign = picked.value.length - changeable.length;
  const each = async (ids: readonly string[], call: (id: string) => Promise<unknown>): Promise<Map<string, unknown>> => {
    problems.value = [];
    const failed = await forEach(ids, call, (number) => (left.value = number));
    problems.value = [...failed].map(([id, error]) => `${nameOf(id)}: ${wordsOf(error)}`);
    readList();
    return failed;
  };
  const act = async (what: Action): Promise<void> => {
    const ids = what === "stop" ? running : changeable;
    asked.value = undefined;
    const failed = await each(ids, (run) => ask(what, { run }));
    if (what === "remove") pick(picked.value.filter((id) => !ids.includes(id) || failed.has(id)));
  };
  if (picked.value.length === 0 && problems.value.length === 0) return null;
  return (
    <div class="picked">
      {picked.value.length > 0 && (
        <>
          <button class="chip" title={t("Pick none")} onClick={() => pick([])}>{t("{n} picked", { n: picked.value.length })} ✕</button>
          {picked.value.length > 1 && picked.value.length <= 10 && <a class="button" href={linkTo({ ...address.value, view: "compare" })}>{t("Side by side")}</a>}
          <a class="button" href={linkTo({ ...address.value, view: "curves" })}>{t("Compare curves")}</a>
          <a class="button" href={linkTo({ ...address.value, view: "hparams" })}>{t("Compare hyperparameters")}</a>
          {can("stop") && <button disabled={running.length === 0 || left.value > 0} onClick={() => (asked.value = "stop")}>{t("Stop…")}</button>}
          {about.value?.kind === "service" && runningOf(picked.value).length > 0 && <Bell jobs={runningOf(picked.value).map((id) => ({ id, name: nameOf(id) }))} />}
          {can("delete") && <button disabled={changeable.length === 0 || left.value > 0} onClick={() => (asked.value = "remove")}>{t("Delete…")}</button>}
          {about.value?.kind === "service" && <AnnotatePicked each={(call, isChange) => void each(isChange ? changeable : picked.value, call)} isBusy={left.value > 0} />}
          {left.value > 0 && <span class="soft" role="status">{t("{n} {n|job|jobs} left", { n: left.value })}</span>}
          {can("stop") && foreign > 0 && <span class="soft">{t("{n} {n|belongs|belong} to others and {n|stays as it is|stay as they are}", { n: foreign })}</span>}
          {hidden > 0 && <span class="soft">{t("{n} of them {n|is|are} not in this list", { n: hidden })}</span>}
        </>
      )}
      {asked.value && <Question what={asked.value} ids={asked.value === "stop" ? running : changeable} onNo={() => (asked.value = undefined)} onYes={act} />}
      {problems.value.length > 0 && (
        <Notice kind="bad">
          <ul>{problems.value.map((problem) => <li key={problem}>{problem}</li>)}</ul>
          <button onClick={() => (problems.value = [])}>{t("Close")}</button>
        </Notice>
      )}
    </div>
  );
}

function Question({ what, ids, onYes, onNo }: { what: Action; ids: readonly string[]; onYes: (what: Action) => Promise<void>; onNo: () => void }) {
  const n = ids.length;
  return (
    <Dialog title={what === "stop" ? t("Stop {n} {n|job|jobs}?", { n }) : t("Delete {n} {n|job|jobs} for good, with {n|its log|their logs} and metrics?", { n })} close={onNo}>
      <ul>
        {ids.slice(0, MOST_NAMES).map((id) => <li key={id}>{nameOf(id)}</li>)}
        {n > MOST_NAMES && <li>{t("and {n} more", { n: n - MOST_NAMES })}</li>}
      </ul>
      <div class="buttons">
        <button class="danger" onClick={() => void onYes(what)}>{what === "stop" ? t("Stop {n} {n|job|jobs}", { n }) : t("Delete {n} {n|job|jobs}", { n })}</button>
        <button onClick={onNo} autofocus>{t("Cancel")}</button>
      </div>
    </Dialog>
  );
}

/** The jobs that this user may stop and delete; the service decides about those that are not in the list. */
function changeableOf(ids: readonly string[]): readonly string[] {
  if (can("others")) return ids;
  const foreign = new Set(list.value?.runs.filter(({ owner }) => (owner ?? "") !== about.value?.user).map(({ id }) => id));
  return ids.filter((id) => !foreign.has(id));
}

/** The jobs that have not ended, as far as the list knows. */
function runningOf(ids: readonly string[]): string[] {
  const ended = new Set(list.value?.runs.filter(isOver).map((run) => run.id));
  return ids.filter((id) => !ended.has(id));
}

/** Calls for each id, a few at once; the ids that failed, with their errors. */
export async function forEach(ids: readonly string[], call: (id: string) => Promise<unknown>, onLeft: (left: number) => void = () => undefined): Promise<Map<string, unknown>> {
  const failed = new Map<string, unknown>();
  const waiting = [...ids];
  let left = ids.length;
  onLeft(left);
  const work = async (): Promise<void> => {
    for (let id = waiting.shift(); id !== undefined; id = waiting.shift()) {
      await call(id).catch((error: unknown) => failed.set(id as string, error));
      onLeft((left -= 1));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return failed;
}

function nameOf(id: string): string {
  return names.value.get(id) ?? id;
}

chinese({
  "Pick none": "取消选择",
  "{n} picked": "已选 {n} 个",
  "Side by side": "并排比较",
  "Compare curves": "比较曲线",
  "Compare hyperparameters": "比较超参数",
  "Stop…": "停止…",
  "Delete…": "删除…",
  "{n} {n|job|jobs} left": "还剩 {n} 个作业",
  "{n} {n|belongs|belong} to others and {n|stays as it is|stay as they are}": "{n} 个属于他人，保持不变",
  "{n} of them {n|is|are} not in this list": "其中 {n} 个不在此列表中",
  "Close": "关闭",
  "Stop {n} {n|job|jobs}?": "停止 {n} 个作业？",
  "Delete {n} {n|job|jobs} for good, with {n|its log|their logs} and metrics?": "永久删除 {n} 个作业及其日志和指标？",
  "and {n} more": "另有 {n} 个",
  "Cancel": "取消",
  "Stop {n} {n|job|jobs}": "停止 {n} 个作业",
  "Delete {n} {n|job|jobs}": "删除 {n} 个作业",
});
