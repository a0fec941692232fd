// Curves of the runs of the list: a chart for each metric, all with one x axis, one zoom and one cursor.
import { useSignal, useSignalEffect } from "@preact/signals";
import { useCallback, useEffect, useMemo, useRef } from "preact/hooks";
import { address, change, go, linkTo } from "../address.ts";
import { send } from "../api.ts";
import { colourOf, groupNames } from "../colours.ts";
import { count, duration, number, zoned } from "../format.ts";
import { copyText, Notice, save } from "../parts/basics.tsx";
import { Chart, type ChartHandle, type Curve, type Range } from "../parts/chart.tsx";
import { countNotAboveZero, limitedRangeOfY, rangeOfX } from "../parts/curve_data.ts";
import { wordsOf } from "../parts/dialog.tsx";
import { svgOf } from "../parts/picture.ts";
import { about } from "../place.ts";
import { filter, list, listError, names, pick, picked, shown, sort } from "../runs.ts";
import { follow } from "../stream.ts";
import { styleColour } from "../theme.ts";
import { chinese, t } from "../words.ts";
import { Answers } from "./answers.ts";
import { conditionOf, filteredTags, isOfService, METRIC, orderedTags, pythonOf, sections, type Answer } from "./compared.ts";
import { CurveControls } from "./curve_controls.tsx";
import { Legend } from "./curve_legend.tsx";
import { bandOf, followWidth, groupBy, hiding, isHidden, isLogX, isLogY, isTrimmed, keepPins, limitsOf, pin, pins, question, tag, words, xAxis, zoom, zoomTo } from "./curve_state.ts";
import { CurveTable } from "./curve_table.tsx";
import { FilterBox } from "./list/filter_box.tsx";
import "./curves.css";

const LARGE_HEIGHT = 440;
const AHEAD = "300px"; // charts are read this far before they are on the screen
const PICTURE = { width: 1200, height: 520 };
const MOST_IDS = 100; // of jobs in code; more are named by the filter
const SCALE = 2; // pixels of a PNG file for each of the page

export function Curves() {
  const answers = useMemo(() => new Answers({ label: (id) => names.value.get(id) ?? id, colour: colourOf }), []);
  useEffect(() => () => answers.end(), []);
  useSignalEffect(() => {
    void answers.latest.value;
    if (list.value) answers.ask(question.value, followWidth.value);
  });
  useSignalEffect(() => {
    groupNames.value = groupBy.value.length > 0 ? answers.groups.value.map(({ name }) => name) : [];
  });
  useEffect(() => {
    if (pins.value.length > 0) keepPins(); // so that a link has them
    return () => void (groupNames.value = []);
  }, []);
  useEffect(
    () =>
      follow("runs", ({ event, data }) => {
        const asked = new Set(question.peek().runs);
        if (event !== "runs" || data.changed.some((id: string) => asked.has(id))) answers.renew();
      }),
    [],
  );
  const ordered = useMemo(() => {
    const { runs = [], tags = [] } = list.value ?? {};
    const having = (at: number): number => runs.reduce((sum, { nan }) => sum + (nan?.[at] == null ? 0 : 1), 0);
    return orderedTags(tags, having, `${sort.value} ${filter.value}`);
  }, [list.value, sort.value, filter.value]);
  if (!list.value) return <main>{listError.value ? <FilterBox /> : <p class="soft">{t("Reading the {runs} …")}</p>}</main>;
  const { runs } = list.value;
  const first = pins.value.filter((one) => ordered.includes(one));
  const tags = filteredTags([...first, ...ordered.filter((one) => !first.includes(one))], words.value);
  const groups = groupBy.value.length > 0 ? answers.groups.value : undefined;
  return (
    <main class="curves">
      <h1 class="hidden-text">{t("Curves")}</h1>
      <FilterBox />
      <CurveControls range={viewOf(answers) ?? knownRange(answers)} />
      {list.value.loading && <p class="soft" role="status">{t("More {runs} are being read; charts become complete.")}</p>}
      {list.value.next && <p class="warn">{t("The list has {m} {runs}; the charts show the first {n} of its order.", { m: count(list.value.total), n: count(list.value.runs.length) })}</p>}
      <div class="curves-body">
        <Legend entries={groups ?? runs.map(({ id }) => ({ name: id, label: names.value.get(id) ?? id }))} />
        <div>{shown.value.length === 0 ? <Empty /> : tag.value ? <Enlarged key={tag.value} tag={tag.value} tags={tags} answers={answers} /> : <Grid tags={tags} answers={answers} />}</div>
      </div>
    </main>
  );
}

function Empty() {
  const isFiltered = filter.value !== "" || picked.value.length > 0;
  return (
    <Notice>
      {isFiltered ? t("No {run} is selected by the filter.") : t("There are no {runs} yet.")}{" "}
      {isFiltered && <button onClick={() => change({ q: "", only: "" })}>{t("Show all {runs}")}</button>}
    </Notice>
  );
}

function Grid({ tags, answers }: { tags: string[]; answers: Answers }) {
  if (tags.length === 0) {
    return <Notice>{words.value ? t("No metric has this in its name.") : t("These {runs} have no metrics yet: `session.report({\"loss\": …})` or a metric's regex make them.")}</Notice>;
  }
  const first = tags.filter((one) => pins.value.includes(one));
  const found = [...(first.length > 0 ? [[t("Pinned"), first] as const] : []), ...sections(tags.slice(first.length), list.value?.tags.length)];
  return (
    <>
      {found.map(([prefix, members]) => (
        <details key={prefix} class="curve-section" open>
          <summary>
            <h2>{prefix || t("Metrics")}</h2> <span class="soft">{count(members.length)}</span>
          </summary>
          <div class={found.length > 1 ? "curve-grid" : "curve-grid only"}>{members.map((one) => <Cell key={one} tag={one} answers={answers} />)}</div>
        </details>
      ))}
    </>
  );
}

/** A chart that is only there while it is on the screen. */
function Cell({ tag: name, answers }: { tag: string; answers: Answers }) {
  const box = useRef<HTMLElement>(null);
  const isNear = useSignal(false);
  useEffect(() => {
    const watcher = new IntersectionObserver(([entry]) => (isNear.value = entry?.isIntersecting ?? false), { rootMargin: AHEAD });
    watcher.observe(box.current as HTMLElement);
    return () => watcher.disconnect();
  }, []);
  useEffect(() => {
    answers.show(name, isNear.value);
    return () => answers.show(name, false);
  }, [isNear.value]);
  return (
    <section class="curve-cell" ref={box}>
      <div class="curve-head">
        <h3><a href={linkTo({ ...address.value, tag: name })} title={t("Enlarge")}>{name}</a></h3>
        <Pin tag={name} />
      </div>
      {isNear.value ? <MetricChart tag={name} answers={answers} /> : <div class="curve-empty" />}
    </section>
  );
}

function Pin({ tag: name }: { tag: string }) {
  return (
    <button class="pin" aria-pressed={pins.value.includes(name)} aria-label={t("Pin {metric}", { metric: name })} title={t("Pinned metrics stand first")} onClick={() => pin(name)}>
      <svg viewBox="0 0 16 16" aria-hidden="true"><path d="M5 2h6l-1 5 2 2H4l2-2zM8 9v5" /></svg>
    </button>
  );
}

function Enlarged({ tag: name, tags, answers }: { tag: string; tags: string[]; answers: Answers }) {
  const handle = useRef<ChartHandle | undefined>(undefined);
  useEffect(() => {
    answers.show(name, true);
    return () => answers.show(name, false);
  }, []);
  const { answer } = answers.of(name).value;
  const curves = useShown(answer);
  const at = tags.indexOf(name);
  const { tag: _, ...others } = address.value;
  const beside = (step: number) => tags[at + step] && <a class="button" href={linkTo({ ...others, tag: tags[at + step] as string })}>{step < 0 ? "←" : "→"} {tags[at + step]}</a>;
  return (
    <section class="curve-large">
      <div class="curve-title">
        <h2>{name}</h2>
        <Pin tag={name} />
        <a class="button" href={linkTo(others)}>{t("All charts")}</a>
        {at > 0 && beside(-1)}
        {beside(1)}
        <Files tag={name} handle={handle} answers={answers} />
      </div>
      <MetricChart tag={name} answers={answers} height={LARGE_HEIGHT} handle={handle} />
      {answer && <CurveTable curves={curves} view={viewOf(answers) ?? rangeOfX(answer.curves) ?? [0, 1]} xText={xText} />}
    </section>
  );
}

/** The curves of an answer that are not hidden. */
function useShown(answer: Answer | undefined): readonly Curve[] {
  return useMemo(() => answer?.curves.filter(({ name }) => !isHidden(name)) ?? [], [answer, hiding.value]);
}

interface MetricProps {
  tag: string;
  answers: Answers;
  height?: number;
  handle?: { current: ChartHandle | undefined };
}

/** The chart of a metric, and what is to be known about it. */
function MetricChart({ tag: name, answers, height, handle }: MetricProps) {
  const { answer, error, isWaiting } = answers.of(name).value;
  const onPick = useCallback((_: number, curve: Curve | undefined) => curve && (curve.runs ? pick(curve.runs) : go({ run: curve.name })), []);
  const curves = useShown(answer);
  const view = viewOf(answers);
  const limits = limitsOf(name);
  const isLimited = limits.isTrimmed || limits.min !== undefined || limits.max !== undefined;
  const limited = useMemo(
    () => (isLimited ? limitedRangeOfY(curves, view ?? rangeOfX(curves, isLogX.value) ?? [0, 1], isLogY.value, limits) : undefined),
    [curves, view?.[0], view?.[1], isLogX.value, isLogY.value, limits.min, limits.max, limits.isTrimmed],
  );
  if (error && !answer) return <Notice kind="bad">{error} {t("Show fewer {runs}, by the filter or by a click on their names.")}</Notice>;
  if (!answer) return <div class={height ? "curve-wait soft" : "curve-wait curve-empty soft"} {...(height ? { style: { height: `${height + 40}px` } } : {})} role="status">{t("Loading …")}</div>;
  const facts = factsOf(answer, view, answer.curves.length - curves.length, limited?.outside);
  return (
    <div class={isWaiting ? "waiting" : ""}>
      <Chart
        title={name}
        curves={curves}
        summary={facts.join("; ")}
        {...(height ? { height } : {})}
        isTime={xAxis.value === "wall"}
        isDuration={xAxis.value === "relative_time"}
        xText={xText}
        view={view}
        rangeY={limited?.range}
        logX={isLogX.value}
        logY={isLogY.value}
        cursorGroup="curves"
        onZoom={zoomTo}
        onPick={onPick}
        {...(handle ? { handle } : {})}
      />
      {error && <Notice kind="bad">{error}</Notice>}
      <p class="curve-facts soft">
        {facts.slice(1).join(" · ")}
        {(["nan", "inf"] as const).map((kind) => answer[kind] > 0 && (
          <button key={kind} class="plain" title={t("Show the {runs} that have such values")} onClick={() => addCondition(conditionOf(name, kind))}>
            {kind === "nan" ? `▲ ${t("{n} NaN", { n: count(answer.nan) })}` : `◆ ${t("{n} infinite", { n: count(answer.inf) })}`}
          </button>
        ))}
      </p>
    </div>
  );
}

function addCondition(condition: string): void {
  const words = filter.value.split(" ");
  if (!words.includes(condition)) change({ q: [filter.value, condition].filter(Boolean).join(" ") });
}

/** What a chart shows, in words; the first part is only for the summary. */
function factsOf(answer: Answer, view: Range | undefined, hidden: number, outside: number | undefined): string[] {
  const { curves, points, buckets, isExact, nan, inf, leftOut } = answer;
  const isGrouped = curves.some((curve) => curve.runs);
  const n = count(curves.length);
  const facts = [isGrouped ? t("{n} {n|group|groups}", { n }) : t("{n} {n|curve|curves}", { n })];
  const values = { b: count(buckets), n: count(points) };
  if (isExact) facts.push(t("all {n} {n|point|points}", values));
  else if (isGrouped) facts.push(bandOf.value === "quantile" ? t("medians in {b} buckets of {n} points", values) : t("means in {b} buckets of {n} points", values));
  else facts.push(t("{b} buckets of {n} points, extremes exact", values));
  const having = isGrouped ? curves.reduce((sum, curve) => sum + (curve.runs?.length ?? 0), 0) : curves.length;
  const asked = shown.value.length;
  if (having < asked) facts.push(t("{n} of {m} {m|run|runs} {n|lacks|lack} this metric", { n: count(asked - having), m: count(asked) }));
  if (hidden > 0) facts.push(t("{n} hidden", { n: count(hidden) }));
  if (leftOut > 0) facts.push(t("{n} {n|point|points} without a value of {x} at {n|its|their} step", { n: count(leftOut), x: xAxis.value.slice(METRIC.length) }));
  if (outside) facts.push(isTrimmed.value ? t("outliers beyond the y axis: {n}", { n: count(outside) }) : t("values beyond the y axis: {n}", { n: count(outside) }));
  const range = view ?? rangeOfX(curves);
  if (isLogY.value && range) {
    const dropped = countNotAboveZero(curves, range);
    if (dropped > 0) facts.push(t("{n} {n|value is|values are} not above 0 and not on the logarithmic axis", { n: count(dropped) }));
  }
  if (range) facts.splice(1, 0, t("x from {from} to {to}", { from: xText(range[0]), to: xText(range[1]) }));
  if (nan + inf > 0) facts[0] += `, ${t("{n} {n|value that is no number|values that are no numbers}", { n: count(nan + inf) })}`;
  return [facts.slice(0, 2).join(", "), ...facts.slice(2)];
}

/** The part of the x axis that charts show; undefined for all that they have. */
function viewOf(answers: Answers): Range | undefined {
  const latest = answers.latest.value;
  if (followWidth.value > 0) return latest === undefined ? undefined : [latest - followWidth.value, latest];
  const { from, to } = zoom.value;
  if (from === undefined && to === undefined) return undefined;
  const known = knownRange(answers) ?? [0, 1];
  return [from ?? Math.min(known[0], to ?? known[0]), to ?? Math.max(known[1], from ?? known[1])];
}

function knownRange(answers: Answers): Range | undefined {
  const latest = answers.latest.value;
  return latest === undefined ? undefined : [answers.earliest.value ?? Math.min(0, latest), latest];
}

function xText(x: number): string {
  if (xAxis.value === "wall") return zoned(x);
  return xAxis.value === "relative_time" ? duration(x) : number(x, 7);
}

/** The chart as a file, or as code. */
function Files({ tag: name, handle, answers }: { tag: string; handle: { current: ChartHandle | undefined }; answers: Answers }) {
  const said = useSignal("");
  const file = name.replace(/[^\w.-]+/g, "_");
  const svg = (): string | undefined => {
    const parts = handle.current?.parts();
    if (!parts) return undefined;
    return svgOf(parts, { ...PICTURE, back: hex(styleColour("--back")), text: hex(styleColour("--text")), bad: hex(styleColour("--bad")), grid: hex(styleColour("--grid")), colourOf: hex });
  };
  const act = (work: () => Promise<string | void>) => () => {
    said.value = "";
    work().then((text) => (said.value = text ?? ""), (error: unknown) => (said.value = wordsOf(error)));
  };
  const csv = async (): Promise<void> => {
    const asked = answers.body(question.value);
    const answer = await send("compare", { body: { ...asked, runs: asked.runs.filter((id) => !isHidden(id)), tags: [name], precision: "double" }, headers: { Accept: "text/csv" } });
    save(await answer.blob(), `${file}.csv`);
  };
  const picture = async (isPng: boolean): Promise<void> => {
    const text = svg();
    if (text) save(isPng ? await pngOf(text) : new Blob([text], { type: "image/svg+xml" }), `${file}.${isPng ? "png" : "svg"}`);
  };
  const python = async (): Promise<string> => {
    const { session, place } = about.value as NonNullable<typeof about.value>;
    const asked = answers.body(question.value);
    const ids = asked.runs.filter((id) => !isHidden(id));
    // A manager of a notebook does not know what the service does, such as which jobs are archived.
    const isList = picked.value.length > 0 || ids.length < asked.runs.length || isOfService(filter.value) || (session !== "" && ids.length <= MOST_IDS);
    await copyText(pythonOf({ session, place, filter: filter.value, runs: isList ? ids : undefined, question: asked, tag: name, logY: isLogY.value }));
    return t("Copied: paste it into a notebook.");
  };
  return (
    <span class="curve-files">
      <button onClick={act(csv)}>CSV</button>
      <button onClick={act(() => picture(true))}>PNG</button>
      <button onClick={act(() => picture(false))}>SVG</button>
      <button onClick={act(python)}>{t("Copy as Python")}</button>
      <span role="status" class="soft">{said.value}</span>
    </span>
  );
}

// A colour as every program reads it.
function hex(colour: string): string {
  const context = document.createElement("canvas").getContext("2d") as CanvasRenderingContext2D;
  context.fillStyle = colour;
  return context.fillStyle;
}

async function pngOf(svg: string): Promise<Blob> {
  const image = new Image();
  const url = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  image.src = url;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.width * SCALE, image.height * SCALE];
  canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(url);
  return new Promise((done, failed) => canvas.toBlob((blob) => (blob ? done(blob) : failed(new Error("no picture"))), "image/png"));
}

chinese({
  "Reading the {runs} …": "正在读取{run}…",
  "Curves": "曲线",
  "More {runs} are being read; charts become complete.": "仍在读取更多{run}，图表会逐步完整。",
  "No {run} is selected by the filter.": "没有符合筛选条件的{run}。",
  "There are no {runs} yet.": "还没有{run}。",
  "Show all {runs}": "显示全部{run}",
  "No metric has this in its name.": "没有名称包含该文字的指标。",
  "These {runs} have no metrics yet: `session.report({\"loss\": …})` or a metric's regex make them.": "这些{run}还没有指标：`session.report({\"loss\": …})` 或指标的正则表达式会产生指标。",
  "Metrics": "指标",
  "Pinned": "置顶",
  "Pin {metric}": "置顶 {metric}",
  "Pinned metrics stand first": "置顶的指标排在最前",
  "{n} hidden": "已隐藏 {n} 条",
  "{n} {n|point|points} without a value of {x} at {n|its|their} step": "{n} 个点在其步数处没有 {x} 的值",
  "outliers beyond the y axis: {n}": "图外的离群值：{n} 个",
  "values beyond the y axis: {n}": "y 轴范围外的值：{n} 个",
  "Enlarge": "放大此图",
  "All charts": "全部图表",
  "Show fewer {runs}, by the filter or by a click on their names.": "请用筛选条件或点击名称减少显示的{run}。",
  "Loading …": "加载中…",
  "Show the {runs} that have such values": "显示含有此类值的{run}",
  "{n} NaN": "{n} 个 NaN",
  "{n} infinite": "{n} 个无穷值",
  "{n} {n|group|groups}": "{n} 组",
  "{n} {n|curve|curves}": "{n} 条曲线",
  "all {n} {n|point|points}": "全部 {n} 个点",
  "means in {b} buckets of {n} points": "均值，{n} 个点分为 {b} 个桶",
  "medians in {b} buckets of {n} points": "中位数，{n} 个点分为 {b} 个桶",
  "The list has {m} {runs}; the charts show the first {n} of its order.": "列表有 {m} 个{run}；图表显示排序最前的 {n} 个。",
  "{b} buckets of {n} points, extremes exact": "{n} 个点分为 {b} 个桶，极值精确",
  "{n} of {m} {m|run|runs} {n|lacks|lack} this metric": "{m} 个{run}中有 {n} 个没有该指标",
  "{n} {n|value is|values are} not above 0 and not on the logarithmic axis": "{n} 个值不大于 0，未显示在对数轴上",
  "x from {from} to {to}": "x 从 {from} 到 {to}",
  "{n} {n|value that is no number|values that are no numbers}": "{n} 个非数值",
  "Copied: paste it into a notebook.": "已复制，可粘贴到笔记本中。",
  "Copy as Python": "复制为 Python",
});
