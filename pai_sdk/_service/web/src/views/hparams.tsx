// Hyperparameters: in which the runs differ, what explains a metric, and pictures of both.
import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { change, field, go, linkTo } from "../address.ts";
import { ask, Refusal } from "../api.ts";
import { number } from "../format.ts";
import { Copyable, Notice } from "../parts/basics.tsx";
import { filter, list, names, shown } from "../runs.ts";
import { chinese, t } from "../words.ts";
import { type Axis, axisOf, ranks, typed, valuesText, withRange, written } from "./hparams/axes.ts";
import { Parallel } from "./hparams/parallel.tsx";
import { Scatter } from "./hparams/scatter.tsx";
import { FACTS, quoted } from "./list/columns.ts";
import { FilterBox } from "./list/filter_box.tsx";
import "./hparams.css";

interface Differing {
  name: string;
  kind: string;
  values: Record<string, unknown>;
  correlation: number | null;
  explained: number | null;
}

interface Diff {
  runs: string[];
  differing: Differing[];
  constant: Record<string, unknown>;
  metric: string;
  metric_values: Record<string, unknown>;
}

const MOST_AXES = 7;
const MOST_ROWS = 200;
const metricField = field("metric");
const factField = field("fact", "last");
const acrossField = field("across");
const upField = field("up");
const colourField = field("colour");

const HOW = `from pai_sdk.runs import EventWriter

with EventWriter("runs/first") as writer:
    writer.hparams({"lr": 0.1})
    writer.scalars({"loss": 0.5}, 1)`;

export function Hparams() {
  const found = useSignal<Diff | undefined>(undefined);
  const problem = useSignal("");
  const tags = list.value?.tags ?? [];
  const tag = metricField.value || usualMetric(tags);
  const metric = tag && factField.value !== "last" ? `${tag}.${factField.value}` : tag;
  const ids = shown.value.map((run) => run.id);
  const versions = shown.value.map((run) => run.v).join();

  useEffect(() => {
    if (ids.length === 0) return undefined;
    const asking = new AbortController();
    ask<Diff>("hparams", { body: { runs: ids, ...(metric ? { metric } : {}) }, signal: asking.signal }).then(
      (diff) => {
        found.value = diff;
        problem.value = "";
      },
      (error: unknown) => error instanceof Refusal && (problem.value = error.message),
    );
    return () => asking.abort();
  }, [ids.join(), versions, metric]);

  const diff = found.value;
  const part = useMemo(() => ranks(diff?.metric_values ?? {}), [diff]);
  const axes = useMemo(() => axesOf(diff), [diff]);
  const nameOf = (run: string): string => names.value.get(run) ?? run;
  const keys = useMemo(() => [...(diff?.differing ?? []).map(({ name }) => name), ...(diff?.metric ? [diff.metric] : [])], [diff]);
  const across = useMemo(() => axisNamed(diff, acrossField.value || keys[0]), [diff, acrossField.value]);
  const up = useMemo(() => axisNamed(diff, upField.value || diff?.metric || keys[1]), [diff, upField.value]);
  const third = useMemo(() => shares(diff, colourField.value, part), [diff, colourField.value]);
  const setRange = (axis: Axis, from: number | undefined, to: number | undefined): void => {
    const key = axis.isMetric ? quoted(`metrics.${axis.name}`) : quoted(`hparams.${axis.name}`);
    change({ q: withRange(filter.value, key, from, to) });
  };

  const titles: Record<string, string> = { last: t("Last"), min: t("Min"), max: t("Max") };

  return (
    <main class="hparams">
      <div class="tools">
        <h1>{t("Hyperparameters")}</h1>
        <label>
          {t("Metric")}{" "}
          <select value={tag} onChange={(event) => change({ metric: event.currentTarget.value }, { replace: true })}>
            {tags.map((one) => <option key={one} value={one}>{one}</option>)}
          </select>
        </label>
        <label>
          {t("Value")}{" "}
          <select value={factField.value} onChange={(event) => change({ fact: event.currentTarget.value }, { replace: true })}>
            {FACTS.map((one) => <option key={one} value={one}>{titles[one]}</option>)}
          </select>
        </label>
        <span class="soft">{t("{n} {n|run|runs}", { n: ids.length })}</span>
        <FilterBox />
      </div>
      {problem.value && <Notice kind="bad">{problem.value}</Notice>}
      {list.value && ids.length === 0 && <Notice>{t("No {run} matches this filter.")}</Notice>}
      {diff && ids.length > 0 && diff.differing.length === 0 && <NothingDiffers diff={diff} />}
      {diff && ids.length > 0 && diff.differing.length > 0 && (
        <>
          <Parallel axes={axes} runs={diff.runs} part={part} nameOf={nameOf} onOpen={(run) => go({ run })} onRange={setRange} />
          <h2>{metric ? t("What explains {metric}", { metric }) : t("What differs")}</h2>
          <Ranking diff={diff} axes={axes} chosen={across?.name ?? ""} onRange={setRange} />
          {across && up && (
            <>
              <h2>{t("{y} against {x}", { x: across.name, y: up.name })}</h2>
              <div class="tools">
                <KeyChoice label={t("x axis")} name="across" value={across.name} keys={keys} />
                <KeyChoice label={t("y axis")} name="up" value={up.name} keys={keys} />
                <KeyChoice label={t("Colour")} name="colour" value={colourField.value || (diff.metric || "")} keys={keys} />
              </div>
              <Scatter across={across} up={up} runs={diff.runs} part={third} nameOf={nameOf} hrefOf={(run) => linkTo({ run })} />
            </>
          )}
          <Constants constant={diff.constant} />
          <Values diff={diff} nameOf={nameOf} />
        </>
      )}
    </main>
  );
}

function usualMetric(tags: readonly string[]): string {
  return tags.find((tag) => /acc|auc|f1|score/i.test(tag) && /eval|val|test/i.test(tag)) ?? tags.find((tag) => /loss/i.test(tag)) ?? tags[0] ?? "";
}

function axesOf(diff: Diff | undefined): Axis[] {
  if (!diff) return [];
  const axes = diff.differing.slice(0, MOST_AXES).map(({ name, kind, values }) => axisOf(name, typed(kind, values)));
  return diff.metric ? [...axes, axisOf(diff.metric, diff.metric_values, true)] : axes;
}

function axisNamed(diff: Diff | undefined, name: string | undefined): Axis | undefined {
  if (!diff || !name) return undefined;
  const one = diff.differing.find((differing) => differing.name === name);
  if (one) return axisOf(name, typed(one.kind, one.values));
  return diff.metric ? axisOf(diff.metric, diff.metric_values, true) : undefined;
}

// The part of each run for its colour: the rank of a number, the place of a text on its axis.
function shares(diff: Diff | undefined, name: string, usual: ReadonlyMap<string, number>): ReadonlyMap<string, number> {
  const one = diff?.differing.find((differing) => differing.name === name);
  const axis = axisNamed(diff, name);
  if (!one || !axis) return usual;
  if (axis.isNumeric) return ranks(one.values);
  return new Map(Object.keys(one.values).map((run) => [run, axis.place(run) ?? 0]));
}

function KeyChoice({ label, name, value, keys }: { label: string; name: string; value: string; keys: readonly string[] }) {
  return (
    <label>
      {label}{" "}
      <select value={value} onChange={(event) => change({ [name]: event.currentTarget.value }, { replace: true })}>
        {keys.map((key) => <option key={key}>{key}</option>)}
      </select>
    </label>
  );
}

interface RankingProps {
  diff: Diff;
  axes: readonly Axis[];
  chosen: string;
  onRange: (axis: Axis, from: number | undefined, to: number | undefined) => void;
}

/** The hyperparameters that differ, those first that explain most; the fields from and to filter by keyboard. */
function Ranking({ diff, axes, chosen, onRange }: RankingProps) {
  return (
    <div class="scroll">
      <table>
        <thead>
          <tr>
            <th scope="col">{t("Hyperparameter")}</th>
            <th scope="col">{t("explains")}</th>
            <th scope="col" class="number">{t("rank correlation")}</th>
            <th scope="col">{t("values")}</th>
            <th scope="col">{t("from, to")}</th>
          </tr>
        </thead>
        <tbody>
          {diff.differing.map((one) => {
            const axis = axes.find(({ name, isMetric }) => name === one.name && !isMetric) ?? axisOf(one.name, typed(one.kind, one.values));
            const missing = diff.runs.length - Object.keys(one.values).length;
            return (
              <tr key={one.name}>
                <td>
                  <button class="plain" aria-pressed={one.name === chosen} onClick={() => change({ across: one.name }, { replace: true })}>{one.name}</button>
                </td>
                <td>{one.explained !== null && <Share part={one.explained} />}</td>
                <td class="number">{number(one.correlation, 2)}</td>
                <td>
                  {valuesText(axis)}
                  {missing > 0 && <span class="soft"> {t("{n} without", { n: missing })}</span>}
                </td>
                <td>{axis.isNumeric && <RangeFields axis={axis} onRange={onRange} />}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

function Share({ part }: { part: number }) {
  return (
    <span class="share">
      <i style={{ width: `${Math.round(part * 80)}px` }} /> {Math.round(part * 100)}%
    </span>
  );
}

function RangeFields({ axis, onRange }: { axis: Axis; onRange: RankingProps["onRange"] }) {
  const from = useSignal("");
  const to = useSignal("");
  const apply = (event: Event): void => {
    event.preventDefault();
    const read = (text: string): number | undefined => (text.trim() === "" || Number.isNaN(Number(text)) ? undefined : Number(text));
    onRange(axis, read(from.value), read(to.value));
  };
  return (
    <form class="range" onSubmit={apply}>
      <input inputMode="decimal" aria-label={t("{name} from", { name: axis.name })} value={from.value} onInput={(event) => (from.value = event.currentTarget.value)} />
      <input inputMode="decimal" aria-label={t("{name} to", { name: axis.name })} value={to.value} onInput={(event) => (to.value = event.currentTarget.value)} />
      <button>{t("Filter")}</button>
    </form>
  );
}

function Constants({ constant }: { constant: Record<string, unknown> }) {
  const entries = Object.entries(constant);
  if (entries.length === 0) return null;
  return (
    <details>
      <summary>{t("{n} {n|is|are} the same in all {runs}", { n: entries.length })}</summary>
      <dl class="constants">{entries.map(([name, value]) => <div key={name}><dt>{name}</dt><dd><code>{written(value)}</code></dd></div>)}</dl>
    </details>
  );
}

/** All values, by run: "–" where a run has none, which is not the same as null. */
function Values({ diff, nameOf }: { diff: Diff; nameOf: (run: string) => string }) {
  const isOpen = useSignal(false);
  const rows = isOpen.value ? diff.runs.slice(0, MOST_ROWS) : [];
  return (
    <details onToggle={(event) => (isOpen.value = event.currentTarget.open)}>
      <summary>{t("All values")}</summary>
      <div class="scroll" tabIndex={0} role="group" aria-label={t("All values")}>
        <table>
          <thead>
            <tr>
              <th scope="col">{t("Name")}</th>
              {diff.metric && <th scope="col" class="number">{diff.metric}</th>}
              {diff.differing.map(({ name }) => <th key={name} scope="col" class="number">{name}</th>)}
            </tr>
          </thead>
          <tbody>
            {rows.map((run) => (
              <tr key={run}>
                <td><a href={linkTo({ run })}>{nameOf(run)}</a></td>
                {diff.metric && <td class="number">{written(diff.metric_values[run])}</td>}
                {diff.differing.map(({ name, values }) => <td key={name} class="number">{written(values[run])}</td>)}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {diff.runs.length > rows.length && <p class="soft">{t("The first {n} of {total}; a filter narrows them.", { n: rows.length, total: diff.runs.length })}</p>}
    </details>
  );
}

function NothingDiffers({ diff }: { diff: Diff }) {
  const hasSome = Object.keys(diff.constant).length > 0;
  return (
    <>
      <Notice>{hasSome ? t("These {runs} have the same hyperparameters.") : t("These {runs} have no hyperparameters. A job's are those of its request; a script writes its own:")}</Notice>
      {hasSome ? <Constants constant={diff.constant} /> : <Copyable text={HOW} />}
    </>
  );
}

chinese({
  "Metric": "指标",
  "Value": "取值",
  "What explains {metric}": "什么解释了 {metric}",
  "What differs": "差异",
  "{y} against {x}": "{y} 对 {x}",
  "y axis": "y 轴",
  "Colour": "颜色",
  "Hyperparameter": "超参数",
  "explains": "解释程度",
  "rank correlation": "秩相关",
  "values": "取值范围",
  "from, to": "从、到",
  "{n} without": "{n} 个没有",
  "{name} from": "{name} 从",
  "{name} to": "{name} 到",
  "{n} {n|is|are} the same in all {runs}": "{n} 个在所有{run}中相同",
  "All values": "所有值",
  "The first {n} of {total}; a filter narrows them.": "前 {n} 个，共 {total} 个；可用筛选缩小范围。",
  "These {runs} have the same hyperparameters.": "这些{run}的超参数相同。",
  "These {runs} have no hyperparameters. A job's are those of its request; a script writes its own:": "这些{run}没有超参数。作业的超参数来自其请求；脚本可以自己写入：",
});
