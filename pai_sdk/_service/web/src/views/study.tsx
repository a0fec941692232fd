// One search: its best trial so far, what its hyperparameters explain, and all trials: `#view=study&study=ID`.
import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { field, go, linkTo } from "../address.ts";
import { ask, Refusal } from "../api.ts";
import { duration, number } from "../format.ts";
import { useAnswer } from "../parts/answer.ts";
import { Notice, Status } from "../parts/basics.tsx";
import { wordsOf } from "../parts/dialog.tsx";
import { Pending, Table } from "../parts/table.tsx";
import { can } from "../place.ts";
import { list, type Run, type RunList } from "../runs.ts";
import { chinese, t } from "../words.ts";
import { type Axis, axisOf, ranks, typed, written } from "./hparams/axes.ts";
import { Parallel } from "./hparams/parallel.tsx";
import { Scatter } from "./hparams/scatter.tsx";
import { type Group, groupOf, objectiveOf, outcomeOf, valueOf } from "./list/folding.ts";
import { progressText } from "./list/folded.ts";
import { forEach } from "./list/picked.tsx";
import "./hparams.css";
import "./study.css";

interface Diff {
  differing: { name: string; kind: string; values: Record<string, unknown>; explained: number | null }[];
}

interface Found {
  list: RunList;
  group: Group;
  diff: Diff; // of all trials
  explained: Diff; // of the complete ones, as the search itself compares them
}

const FIELDS = "status,name,created_at,started_at,ended_at,labels,hparams,last,min,max";
const MOST_TRIALS = 10_000;
const MOST_ROWS = 500;
const MOST_AXES = 7;
const GREY = "Grey trials are not complete: pruned, failed or running.";
const study = field("study");

export function Study() {
  return <main class="study hparams"><One key={study.value} id={study.value} /></main>;
}

async function read(id: string, signal: AbortSignal): Promise<Found> {
  const query = { filter: `labels.pai-sdk-study="${id.replace(/["\\]/g, "\\$&")}"` };
  const [newest] = id ? (await ask<RunList>("runs", { query: { ...query, sort: "-created", limit: 1, fields: "labels" }, signal })).runs : [];
  if (!newest) throw new Refusal(404, "", t("No trial of this search is a job that you can see."));
  const objective = objectiveOf(newest.labels?.["pai-sdk-objective"]);
  const tags = objective && JSON.stringify([objective.metric]); // trials may have hundreds of other metrics
  const found = await ask<RunList>("runs", { query: { ...query, sort: "created", limit: MOST_TRIALS, fields: FIELDS, tags }, signal });
  const group = groupOf(`study:${id}`, found.runs, found.tags);
  const { metric, fact } = objective ?? {};
  const isKnown = objective && group.runs.some((run) => valueOf(run, objective, found.tags) !== undefined);
  const name = isKnown && fact !== "last" ? `${metric}.${fact}` : isKnown && metric;
  const diff = (runs: readonly Run[]): Promise<Diff> | Diff =>
    runs.length < 2 ? { differing: [] } : ask<Diff>("hparams", { body: { runs: runs.map((run) => run.id), ...(name ? { metric: name } : {}) }, signal });
  const complete = group.runs.filter((run) => outcomeOf(run) === "done");
  const [all, ofComplete] = await Promise.all([diff(group.runs), complete.length < group.runs.length ? diff(complete) : undefined]);
  // A service keeps the hyperparameters of jobs as text, numbers too.
  return { list: found, group, diff: { differing: all.differing.map((one) => ({ ...one, values: typed(one.kind, one.values) })) }, explained: ofComplete ?? all };
}

function One({ id }: { id: string }) {
  const [answer, again] = useAnswer((signal) => read(id, signal), [id], list.value?.version);
  const found = answer.value;
  const axes = useMemo(() => (found ? axesOf(found) : []), [found]);
  if (!found) return <Pending answer={answer} />;
  const { group, list: { tags } } = found;
  const { objective, best, counts } = group;
  const isActive = counts.running + counts.waiting > 0;
  const trials = group.runs.map((run) => run.id);
  // Pruned, failed and running trials have no colour: only complete ones are compared.
  const values = Object.fromEntries(group.runs.flatMap((run) => (outcomeOf(run) === "done" && objective ? [[run.id, valueOf(run, objective, tags)]] : [])));
  const explained = found.explained.differing.filter((one) => one.explained !== null).sort((one, other) => (other.explained ?? 0) - (one.explained ?? 0));
  return (
    <>
      <h1>{group.name} <Status status={isActive ? "running" : counts.done > 0 ? "succeeded" : "stopped"} /></h1>
      <p class="soft">
        {objective && <>{objective.isMax ? t("maximize {metric}", { metric: objective.metric }) : t("minimize {metric}", { metric: objective.metric })} · </>}
        {progressText(group)}
      </p>
      {best && objective && (
        <p>
          {t("Best:")} <strong>{number(valueOf(best, objective, tags))}</strong> · <a href={linkTo({ run: best.id })}>{t("trial {n}", { n: trialOf(best) })}</a>
          <span class="soft"> {found.diff.differing.map(({ name, values: of }) => `${name} ${written(of[best.id])}`).join(", ")}</span>
        </p>
      )}
      {!objective && <Notice>{t("These trials do not say their objective: an earlier release has submitted them.")}</Notice>}
      {isActive && can("stop") && <StopTrials group={group} onStopped={again} />}
      <div class="study-top">
        {objective && <History group={group} tags={tags} />}
        {explained.length > 0 && (
          <Table name={t("Importance of hyperparameters")} heads={[t("Hyperparameter"), t("explains {metric}", { metric: objective?.metric ?? "" })]}>
            {explained.map((one) => (
              <tr key={one.name}>
                <th scope="row">{one.name}</th>
                <td><span class="share"><i style={{ width: `${Math.round((one.explained ?? 0) * 160)}px` }} /> {Math.round((one.explained ?? 0) * 100)}%</span></td>
              </tr>
            ))}
          </Table>
        )}
      </div>
      {axes.length > 1 && (
        <>
          <h2>{t("Parallel coordinates")}</h2>
          <Parallel axes={axes} runs={trials} part={ranks(values)} nameOf={(run) => nameOf(group.runs, run)} onOpen={(run) => go({ run })} hint={Object.keys(values).length < trials.length ? t(GREY) : ""} />
        </>
      )}
      <Trials found={found} />
      <p>
        <a href={linkTo({ q: `labels.pai-sdk-study=${id}`, fold: "-" })}>{t("All jobs of the search")}</a> · <a href={linkTo({ view: "curves", q: `labels.pai-sdk-study=${id}` })}>{t("Curves")}</a>
        {" · "}<a href={linkTo({ view: "hparams", q: `labels.pai-sdk-study=${id}` })}>{t("Hyperparameters")}</a>
      </p>
    </>
  );
}

/** Stops the trials that have not ended. What chooses trials is a process of the user, which the service does not know. */
function StopTrials({ group, onStopped }: { group: Group; onStopped: () => void }) {
  const isAsked = useSignal(false);
  const problem = useSignal("");
  const active = group.runs.filter((run) => ["running", "waiting"].includes(outcomeOf(run)));
  const stop = async (): Promise<void> => {
    isAsked.value = false;
    const failed = await forEach(active.map(({ id }) => id), (run) => ask("stop", { run }));
    problem.value = [...failed.values()].map(wordsOf)[0] ?? "";
    onStopped();
  };
  return (
    <div>
      {!isAsked.value && <button onClick={() => (isAsked.value = true)}>{t("Stop running trials…")}</button>}
      {isAsked.value && (
        <Notice>
          <p>{t("The program that runs the search goes on, and submits the next trials: end it first, with Ctrl-C.")}</p>
          <button class="danger" onClick={() => void stop()}>{t("Stop {n} {n|job|jobs}", { n: active.length })}</button> <button onClick={() => (isAsked.value = false)}>{t("Cancel")}</button>
        </Notice>
      )}
      {problem.value && <Notice kind="bad">{problem.value}</Notice>}
    </div>
  );
}

/** The value of each trial by its number, and a line of the best ones so far. */
function History({ group: { objective, runs }, tags }: { group: Group; tags: readonly string[] }) {
  if (!objective) return null;
  const valued = runs.filter((run) => valueOf(run, objective, tags) !== undefined).sort((one, other) => Number(trialOf(one)) - Number(trialOf(other)));
  if (valued.length === 0) return null;
  const numbers = axisOf(t("Trial"), Object.fromEntries(valued.map((run) => [run.id, Number(trialOf(run))])));
  const across = { ...numbers, isLog: false, ticks: numbers.ticks.map((tick) => ({ ...tick, text: String(Math.round(numbers.valueAt(tick.at))) })) };
  const up = axisOf(objective.metric, Object.fromEntries(valued.map((run) => [run.id, valueOf(run, objective, tags)])), true);
  const complete = valued.filter((run) => outcomeOf(run) === "done");
  let best: number | undefined;
  const line = complete.filter((run) => {
    const value = valueOf(run, objective, tags) as number;
    const isBetter = best === undefined || (objective.isMax ? value > best : value < best);
    if (isBetter) best = value;
    return isBetter;
  });
  return <Scatter across={across} up={up} runs={valued.map(({ id }) => id)} part={new Map(complete.map(({ id }) => [id, 0.4]))} line={line.map(({ id }) => id)} hint={`${t("The line is the best value so far.")} ${complete.length < valued.length ? t(GREY) : ""}`} nameOf={(run) => nameOf(runs, run)} hrefOf={(run) => linkTo({ run })} />;
}

function Trials({ found: { group, diff, list: { tags } } }: { found: Found }) {
  const { objective } = group;
  const rows = [...group.runs].sort((one, other) => Number(trialOf(one)) - Number(trialOf(other)));
  return (
    <>
      <h2>{t("Trials")}</h2>
      <Table name={t("Trials")} heads={[[t("Trial")], t("Status"), ...(objective ? [[objective.metric] as const] : []), ...diff.differing.map(({ name }) => [name] as const), [t("Ran")], t("Job")]}>
        {rows.slice(0, MOST_ROWS).map((run) => (
          <tr key={run.id} class={run === group.best ? "best" : ""}>
            <th scope="row" class="number">{trialOf(run)}</th>
            <td>{outcomeOf(run) === "pruned" ? <span class="soft">⊘ {outcomeText(run)}</span> : <Status status={run.status} />}</td>
            {objective && <td class="number">{number(valueOf(run, objective, tags))}</td>}
            {diff.differing.map(({ name, values }) => <td key={name} class="number">{written(values[run.id])}</td>)}
            <td class="number">{ranText(run)}</td>
            <td><a class="mono" href={linkTo({ run: run.id })}>{run.name ?? run.id}</a></td>
          </tr>
        ))}
      </Table>
      {rows.length > MOST_ROWS && <p class="soft">{t("The first {n} of {total} trials.", { n: MOST_ROWS, total: rows.length })}</p>}
    </>
  );
}

function outcomeText(run: Run): string {
  return outcomeOf(run) === "pruned" ? t("pruned at step {n}", { n: run.labels?.["pai-sdk-pruned"] ?? "" }) : (run.status ?? "");
}

function ranText({ started_at, ended_at, status }: Run & { started_at?: number }): string {
  return started_at && (ended_at || status === "Running") ? duration((ended_at ?? Date.now() / 1000) - started_at) : "";
}

function trialOf(run: Run): string {
  return run.labels?.["pai-sdk-trial"] ?? "";
}

function nameOf(runs: readonly Run[], id: string): string {
  const run = runs.find((one) => one.id === id);
  return run ? `${t("trial {n}", { n: trialOf(run) })} (${outcomeText(run)})` : id;
}

function axesOf({ group: { objective, runs }, diff, list: { tags } }: Found): Axis[] {
  const axes = diff.differing.slice(0, MOST_AXES).map(({ name, values }) => axisOf(name, values));
  if (!objective) return axes;
  const values = runs.flatMap((run) => {
    const value = valueOf(run, objective, tags);
    return value === undefined ? [] : [[run.id, value] as const];
  });
  return values.length > 0 ? [...axes, axisOf(objective.metric, Object.fromEntries(values), true)] : axes;
}

chinese({
  "No trial of this search is a job that you can see.": "此搜索没有你能看到的作业。",
  "maximize {metric}": "最大化 {metric}",
  "minimize {metric}": "最小化 {metric}",
  "Best:": "最佳：",
  "trial {n}": "试验 {n}",
  "These trials do not say their objective: an earlier release has submitted them.": "这些试验没有说明目标：它们由较早的版本提交。",
  "Importance of hyperparameters": "超参数重要性",
  "explains {metric}": "对 {metric} 的解释程度",
  "Grey trials are not complete: pruned, failed or running.": "灰色试验未完成：被剪枝、失败或运行中。",
  "The line is the best value so far.": "折线是目前的最佳值。",
  "All jobs of the search": "此搜索的所有作业",
  "Stop running trials…": "停止运行中的试验…",
  "The program that runs the search goes on, and submits the next trials: end it first, with Ctrl-C.": "运行搜索的程序会继续并提交后面的试验：请先按 Ctrl-C 结束它。",
  "Trials": "试验",
  "Trial": "试验",
  "The first {n} of {total} trials.": "前 {n} 个，共 {total} 个试验。",
  "pruned at step {n}": "在第 {n} 步被剪枝",
});
