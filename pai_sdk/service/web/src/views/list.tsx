// The list of jobs and runs: filter, columns, order, what is picked; and what to do where there is none yet.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { address, change, field, linkTo } from "../address.ts";
import { ask, Refusal } from "../api.ts";
import { count } from "../format.ts";
import { Copyable, Notice } from "../parts/basics.tsx";
import { about, can } from "../place.ts";
import { filter, list, listError, names, pick, picked, readList, shown, sort } from "../runs.ts";
import { chinese, t } from "../words.ts";
import { columnOf, FACTS, keysOf, quoted, usualKeys } from "./list/columns.ts";
import { FilterBox } from "./list/filter_box.tsx";
import { ColumnsMenu, Menu, ViewsMenu } from "./list/menu.tsx";
import { Rows } from "./list/rows.tsx";
import "./list.css";

const cols = field("cols");

const FIRST_JOB = `from pai_sdk import Processor, Session

session = Session.embedded()
Processor("python:3.11", "echo hello", instance_type="ecs.c6.large", session=session).run()`;

const FIRST_RUN = `from pai_sdk import ReportSession

with ReportSession("runs/first") as training:
    for step in range(100):
        training.report({"loss": 1 / (1 + step)}, step)`;

export function List() {
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (event.key !== "/" || (event.target as HTMLElement).closest("input, textarea, select")) return;
      event.preventDefault();
      document.getElementById("filter")?.focus();
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
  const found = list.value;
  const isEmpty = found !== undefined && found.total === 0 && !filter.value;
  if (isEmpty && !listError.value) return <Empty isLoading={found.loading} />;
  const chosen = cols.value === "-" ? [] : cols.value ? cols.value.split(",").map(decodeURIComponent) : found ? usualKeys(found) : [];
  const keys = withSorted(chosen, found ? keysOf(found) : []);
  return (
    <main class="list">
      <h1 class="hidden-text">{t("Jobs and runs")}</h1>
      <div class="tools">
        <FilterBox />
        <ColumnsMenu keys={keys} />
        <ViewsMenu />
        <Keys />
      </div>
      {!filter.value && found && <Examples tags={found.tags} />}
      {listError.value && <Notice kind="bad">{listError.value}</Notice>}
      <p class="count soft" role="status">{found === undefined ? t("reading the list…") : countText()}</p>
      {picked.value.length > 0 && <Picked />}
      {found && found.total === 0 && !listError.value && (
        <Notice>
          {t("No run matches this filter.")} <button onClick={() => change({ q: "" })}>{t("Clear the filter")}</button>
        </Notice>
      )}
      {shown.value.length > 0 && found && <Rows columns={keys.map((key) => columnOf(key, found.tags))} />}
    </main>
  );
}

/** The columns, and the one that the list is sorted by. */
function withSorted(keys: string[], all: readonly string[]): string[] {
  const key = sort.value.replace(/^-/, "");
  const isKnown = all.some((one) => quoted(one) === key || FACTS.some((fact) => quoted(`${one}.${fact}`) === key));
  const sorted = key.replace(/"((?:[^"\\]|\\.)*)"/, (_, name: string) => name.replace(/\\(.)/g, "$1"));
  return isKnown && !keys.includes(sorted) ? [...keys, sorted] : keys;
}

function countText(): string {
  const { total = 0, runs = [], loading = false } = list.value ?? {};
  const read = runs.length < total ? t("the first {n} of {total}; a filter narrows them", { n: count(runs.length), total: count(total) }) : t("{n} runs", { n: count(total) });
  return loading ? `${read}, ${t("more are being read")}` : read;
}

function Examples({ tags }: { tags: readonly string[] }) {
  const metric = tags.find((tag) => /^[\w/]*loss$/.test(tag)) ?? tags[0];
  const examples = [...(about.value?.kind === "service" ? ["status=Running", "status=Failed"] : []), ...(metric ? [`${metric}<0.5`] : []), "nan>0", "created>-1d"];
  return (
    <p class="examples">
      <span class="soft">{t("For example:")}</span>
      {examples.map((text) => (
        <a key={text} href={linkTo({ ...address.value, q: text })}><code>{text}</code></a>
      ))}
    </p>
  );
}

/** What can be done with the runs that are picked. */
function Picked() {
  const asked = useSignal<"stop" | "remove" | undefined>(undefined);
  const problems = useSignal<string[]>([]);
  const { length } = picked.value;
  const act = async (what: "stop" | "remove"): Promise<void> => {
    asked.value = undefined;
    const results = await Promise.allSettled(picked.value.map((run) => ask(what, { run })));
    problems.value = results.flatMap((result, at) =>
      result.status === "fulfilled" ? [] : [`${names.value.get(picked.value[at] ?? "") ?? picked.value[at]}: ${said(result.reason)}`],
    );
    if (what === "remove" && problems.value.length === 0) pick([]);
    readList();
  };
  return (
    <div class="picked">
      <button class="chip" title={t("Show all again")} onClick={() => pick([])}>{t("{n} picked", { n: length })} ✕</button>
      <a class="button" href={linkTo({ ...address.value, view: "curves" })}>{t("Compare curves")}</a>
      <a class="button" href={linkTo({ ...address.value, view: "hparams" })}>{t("Compare hyperparameters")}</a>
      {asked.value ? (
        <span role="alertdialog" aria-label={t("Confirm")}>
          <button class="danger" onClick={() => void act(asked.value as "stop" | "remove")}>
            {asked.value === "stop" ? t("Stop {n} jobs", { n: length }) : t("Delete {n} jobs for good", { n: length })}
          </button>{" "}
          <button onClick={() => (asked.value = undefined)}>{t("No")}</button>
        </span>
      ) : (
        <>
          {can("stop") && <button onClick={() => (asked.value = "stop")}>{t("Stop…")}</button>}
          {can("delete") && <button onClick={() => (asked.value = "remove")}>{t("Delete…")}</button>}
        </>
      )}
      {problems.value.map((problem) => <Notice key={problem} kind="bad">{problem}</Notice>)}
    </div>
  );
}

function said(error: unknown): string {
  return error instanceof Refusal ? error.message : t("the service does not answer");
}

function Keys() {
  const keys = [["/", t("to the filter")], ["j k", t("next row, row before")], ["Enter", t("open")], ["x", t("pick")]] as const;
  return (
    <Menu title="?">
      <dl>{keys.map(([key, text]) => <div key={key}><dt><kbd>{key}</kbd></dt><dd>{text}</dd></div>)}</dl>
    </Menu>
  );
}

function Empty({ isLoading }: { isLoading: boolean }) {
  if (isLoading) return <main><p class="soft" role="status">{t("The runs are being read…")}</p></main>;
  const isService = about.value?.kind === "service";
  return (
    <main class="empty">
      <h1>{isService ? t("No jobs yet") : t("No runs yet")}</h1>
      <p>{isService ? t("These lines start a first job; it appears here by itself:") : t("A run is a folder with event files. These lines write one; it appears here by itself:")}</p>
      <Copyable text={isService ? FIRST_JOB : FIRST_RUN} />
      {isService && <p class="soft">{t("Or run `pai-sdk demo`, which trains a small model in two jobs.")}</p>}
    </main>
  );
}

chinese({
  "reading the list…": "正在读取列表…",
  "No run matches this filter.": "没有符合此筛选条件的运行。",
  "the first {n} of {total}; a filter narrows them": "前 {n} 个，共 {total} 个；可用筛选缩小范围",
  "{n} runs": "{n} 个运行",
  "more are being read": "更多正在读取",
  "For example:": "例如：",
  "Show all again": "重新显示全部",
  "{n} picked": "已选 {n} 个",
  "Compare curves": "比较曲线",
  "Compare hyperparameters": "比较超参数",
  "Confirm": "确认",
  "Stop {n} jobs": "停止 {n} 个作业",
  "Delete {n} jobs for good": "永久删除 {n} 个作业",
  "No": "取消",
  "Stop…": "停止…",
  "Delete…": "删除…",
  "the service does not answer": "服务没有响应",
  "to the filter": "跳到筛选框",
  "next row, row before": "下一行、上一行",
  "open": "打开",
  "pick": "选择",
  "The runs are being read…": "正在读取运行…",
  "No jobs yet": "还没有作业",
  "No runs yet": "还没有运行",
  "These lines start a first job; it appears here by itself:": "以下代码启动第一个作业，它会自动出现在这里：",
  "A run is a folder with event files. These lines write one; it appears here by itself:": "运行是含有事件文件的文件夹。以下代码写入一个运行，它会自动出现在这里：",
  "Or run `pai-sdk demo`, which trains a small model in two jobs.": "或者执行 `pai-sdk demo`，它用两个作业训练一个小模型。",
});
