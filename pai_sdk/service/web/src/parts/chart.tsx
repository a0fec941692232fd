// A chart of curves: uPlot has the axes, the cursor and the selection; the curves are drawn here, from typed arrays.
//
//   <Chart title="loss" curves={curves} summary="2 curves, all 400 points" view={[0, 100]} onZoom={…} onPick={…} />
//
// Curves need no common x. What is nearest to the cursor is highlighted on a canvas above, so the curves are not drawn
// again for it. `highlighted` and `cursor` are shared by all charts of the page.
import { effect, signal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { moment, number } from "../format.ts";
import { isDark, styleColour } from "../theme.ts";
import { chinese, t } from "../words.ts";
import { drawBand, drawLine, hasBands, nearestCurve, nearestIndex, placer, pointAt, rangeOfX, rangeOfY } from "./curve_data.ts";
import type { Curve, Range, View } from "./curve_data.ts";
import type { PictureParts } from "./picture.ts";
import "./chart.css";

export type { Curve, Odd, Range } from "./curve_data.ts";

/** Something that happened at a place of the x axis. */
export interface Mark {
  x: number;
  kind: "info" | "good" | "warn" | "bad";
  text: string;
  sign?: string; // one character, above the line; by the kind otherwise
}

/** What the owner of a chart can ask of it. */
export interface ChartHandle {
  parts(): PictureParts | undefined; // for a picture as a file
}

export interface ChartProps {
  title: string;
  curves: readonly Curve[];
  summary: string; // what the chart shows, for people who do not see it
  height?: number;
  isTime?: boolean; // x is in seconds since 1970
  xText?: (x: number) => string; // x in words, for the text at the cursor
  view?: Range | undefined; // the part of x that is shown; all of it without
  logX?: boolean;
  logY?: boolean;
  marks?: readonly Mark[];
  cursorGroup?: string; // charts of one group share the cursor
  onZoom?: (view: Range | undefined) => void; // a part was selected; undefined: all of x is wanted
  onPick?: (x: number, curve: Curve | undefined) => void; // a place was clicked, and the curve that is near to it
  handle?: { current: ChartHandle | undefined };
}

/** The name of the curve that is highlighted in all charts; empty if none is. */
export const highlighted = signal("");
/** Where the cursor is, in which group of charts. */
export const cursor = signal<{ x: number; group: string } | undefined>(undefined);

const SIGNS = { info: "◆", good: "✓", warn: "!", bad: "✕" };
const MANY = 200; // curves; above, a chart is drawn once a second at most, below four times
const NEAR = 24; // pixels
const LEAST_SELECTION = 6; // pixels; less is a click
const ODD_SIZE = 4;
const MOST_MARKS = 200;
const LEAST_PART = 1e-6; // of x that + zooms to

export function Chart(props: ChartProps) {
  const { title, summary, curves, marks = [], height = 220 } = props;
  const box = useRef<HTMLDivElement>(null);
  const drawing = useRef<Drawing | undefined>(undefined);
  const said = useSignal(""); // by keyboard only: a screen reader reads it
  const latest = useRef(props);
  latest.current = props;

  useEffect(() => {
    const made = (drawing.current = new Drawing(box.current as HTMLElement, () => latest.current));
    if (props.handle) props.handle.current = made;
    return () => made.end();
  }, [props.isTime, props.logX, props.logY]);
  useEffect(() => drawing.current?.changed(false), [curves]);
  useEffect(() => drawing.current?.changed(true), [props.view?.[0], props.view?.[1], height, marks]);

  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.target !== event.currentTarget || event.altKey || event.ctrlKey || event.metaKey) return;
    const text = drawing.current?.key(event.key, event.shiftKey);
    if (text === undefined) return;
    event.preventDefault();
    said.value = text;
  };
  return (
    <div class="chart">
      <div
        class="chart-box"
        ref={box}
        tabIndex={0}
        role="application"
        aria-label={`${title}: ${summary}. ${t("Arrow keys move the cursor, + and - zoom, Escape shows all, Enter picks.")}`}
        style={{ height: `${height}px` }}
        onKeyDown={onKeyDown}
      />
      <span class="hidden-text" aria-live="polite">{said}</span>
      {marks.length > 0 && <Marks marks={marks} xText={props.xText} isTime={props.isTime} />}
    </div>
  );
}

function Marks({ marks, xText, isTime }: Pick<ChartProps, "xText" | "isTime"> & { marks: readonly Mark[] }) {
  return (
    <details class="chart-marks">
      <summary>{t("{n} marks", { n: marks.length })}</summary>
      <ul>
        {marks.slice(0, MOST_MARKS).map((mark) => (
          <li key={`${mark.x}${mark.text}`}>
            <span class={mark.kind} aria-hidden="true">{mark.sign ?? SIGNS[mark.kind]}</span> {textOfX(mark.x, xText, isTime)}: {mark.text}
          </li>
        ))}
      </ul>
    </details>
  );
}

function textOfX(x: number, xText: ((x: number) => string) | undefined, isTime: boolean | undefined): string {
  return xText ? xText(x) : isTime ? moment(x) : number(x, 7);
}

/** What is drawn of one chart; it lives as long as its axes are of one kind. */
class Drawing implements ChartHandle {
  private readonly plot: uPlot;
  private readonly above: HTMLCanvasElement; // for what is highlighted
  private readonly tip: HTMLDivElement;
  private readonly sizes: ResizeObserver;
  private readonly ends: (() => void)[] = [];
  private x: Range = [0, 1];
  private y: Range = [0, 1];
  private waiting: ReturnType<typeof setTimeout> | undefined;
  private drawnAt = 0;
  private drawn: unknown[] = [];
  private isSelecting = false;
  private frame = 0;

  constructor(
    private readonly box: HTMLElement,
    private readonly props: () => ChartProps,
  ) {
    this.readRanges();
    this.plot = new uPlot(this.options(), this.corners(), box);
    this.above = this.plot.over.appendChild(document.createElement("canvas"));
    this.above.className = "chart-above";
    this.tip = this.plot.over.appendChild(document.createElement("div"));
    this.tip.className = "chart-tip";
    this.tip.hidden = true;
    this.plot.over.addEventListener("click", (event) => this.clicked(event));
    this.sizes = new ResizeObserver(() => this.resized());
    this.sizes.observe(box);
    this.ends.push(effect(() => this.dark(isDark.value)));
    this.ends.push(effect(() => this.show(highlighted.value, cursor.value)));
  }

  end(): void {
    clearTimeout(this.waiting);
    cancelAnimationFrame(this.frame);
    this.sizes.disconnect();
    for (const end of this.ends) end();
    this.plot.destroy();
  }

  /** Draws what is new: at once after a person did something, otherwise not too often. */
  changed(atOnce: boolean): void {
    const { curves, view, marks, height } = this.props();
    const wanted = [curves, view?.[0], view?.[1], marks, height];
    if (wanted.every((one, at) => one === this.drawn[at])) return;
    clearTimeout(this.waiting);
    const pause = this.props().curves.length > MANY ? 1000 : 250;
    const wait = this.drawnAt + pause - performance.now();
    if (atOnce || wait <= 0) this.draw();
    else this.waiting = setTimeout(() => this.draw(), wait);
  }

  parts(): PictureParts | undefined {
    const { title, curves, logX = false, logY = false } = this.props();
    const [below, beside] = this.plot.axes as unknown as { _splits: number[]; _values: (string | null)[] }[];
    if (!below || !beside) return undefined;
    const ticks = (axis: typeof below): [number, string][] => axis._splits.map((at, index) => [at, axis._values[index] ?? ""]);
    return { title, curves, x: this.x, y: this.y, logX, logY, ticksX: ticks(below), ticksY: ticks(beside) };
  }

  /** What a key does; the text at the cursor, or undefined for a key of no use here. */
  key(key: string, isLarge: boolean): string | undefined {
    const { curves, onZoom, onPick, cursorGroup = "" } = this.props();
    const place = cursor.value?.group === cursorGroup ? cursor.value.x : (this.x[0] + this.x[1]) / 2;
    const at = Math.max(0, curves.findIndex((curve) => curve.name === highlighted.value));
    const curve = curves[at];
    const zoom = (factor: number): void => {
      const least = (this.x[1] - this.x[0]) * (factor < 1 ? factor : 1) + LEAST_PART * Math.abs(place);
      if (least > 0) onZoom?.([place - (place - this.x[0]) * factor, place + (this.x[1] - place) * factor]);
    };
    const moveTo = (index: number): void => {
      const x = curve?.x[Math.min(Math.max(index, 0), curve.x.length - 1)];
      if (curve && x !== undefined) this.point(x, curve.name);
    };
    const index = curve ? nearestIndex(curve.x, place) : 0;
    const step = isLarge ? 10 : 1;
    if (key === "ArrowLeft") moveTo(index - step);
    else if (key === "ArrowRight") moveTo(index + step);
    else if (key === "Home") moveTo(0);
    else if (key === "End") moveTo(Infinity);
    else if (key === "ArrowUp" || key === "ArrowDown") {
      const next = curves[(at + (key === "ArrowUp" ? curves.length - 1 : 1)) % curves.length];
      if (next) this.point(place, next.name);
    } else if (key === "+" || key === "=") zoom(0.5);
    else if (key === "-" || key === "−") zoom(2);
    else if (key === "Escape") {
      onZoom?.(undefined);
      this.point(undefined, "");
    } else if (key === "Enter" && onPick) onPick(place, curve);
    else return undefined;
    return this.tip.textContent ?? "";
  }

  private point(x: number | undefined, name: string): void {
    const { cursorGroup: group = "" } = this.props();
    highlighted.value = name;
    cursor.value = x === undefined ? undefined : { x, group };
    this.show(name, cursor.value);
  }

  private draw(): void {
    this.drawnAt = performance.now();
    this.readRanges();
    const { height = 220 } = this.props();
    if (this.plot.height !== height) this.plot.setSize({ width: this.plot.width, height });
    this.plot.setData(this.corners());
    this.show(highlighted.peek(), cursor.peek());
  }

  private readRanges(): void {
    const { curves, view, logX, logY, marks, height } = this.props();
    this.drawn = [curves, view?.[0], view?.[1], marks, height];
    const all = rangeOfX(curves, logX);
    const wanted = view && logX ? ([view[0] > 0 ? view[0] : (all?.[0] ?? view[1] / 1000), view[1]] as Range) : view;
    this.x = wanted && wanted[0] < wanted[1] ? wanted : (all ?? [logX ? 1 : 0, logX ? 10 : 1]);
    this.y = rangeOfY(curves, this.x, logY) ?? [logY ? 0.1 : 0, 1];
  }

  // uPlot only gets the corners; its scales follow from them.
  private corners(): uPlot.AlignedData {
    return [[...this.x], [...this.y]];
  }

  private options(): uPlot.Options {
    const { isTime = false, logX, logY, height = 220, onZoom } = this.props();
    const stroke = (name: string) => () => this.colour(name);
    const axis: uPlot.Axis = { stroke: stroke("--soft"), grid: { stroke: stroke("--grid"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif", gap: 4 };
    const values = (_: uPlot, splits: number[]): string[] => splits.map((value) => (value === null ? "" : number(value, 6)));
    return {
      width: Math.max(120, this.box.clientWidth),
      height,
      padding: [10, 10, 0, 0],
      legend: { show: false },
      scales: {
        x: { time: isTime, distr: logX ? 3 : 1, range: () => [...this.x] },
        y: { distr: logY ? 3 : 1, range: () => [...this.y] },
      },
      series: [{}, { paths: () => null, points: { show: false } }],
      axes: [
        { ...axis, size: 26, space: isTime ? 90 : 60, ...(isTime ? {} : { values }) },
        { ...axis, values, size: (_, texts) => 14 + 7 * Math.max(2, ...(texts ?? []).map((text) => text?.length ?? 0)) },
      ],
      cursor: {
        y: false,
        points: { show: false },
        drag: { x: Boolean(onZoom), y: false, setScale: false },
        bind: { dblclick: () => () => (this.props().onZoom?.(undefined), null) },
      },
      hooks: {
        draw: [() => this.drawCurves()],
        setSelect: [(plot) => this.selected(plot)],
        setCursor: [() => this.moved()],
      },
    };
  }

  private readonly colours = new Map<string, string>();
  private colour(name: string): string {
    let known = this.colours.get(name);
    if (!known) this.colours.set(name, (known = styleColour(name)));
    return known;
  }

  private dark(_: boolean): void {
    this.colours.clear();
    this.plot.redraw(false);
  }

  private resized(): void {
    const width = this.box.clientWidth;
    if (width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: this.plot.height });
  }

  private view(left: number, top: number, width: number, height: number): View {
    const { logX = false, logY = false } = this.props();
    return { x: this.x, y: this.y, logX, logY, left, top, width, height };
  }

  private drawCurves(): void {
    const { curves } = this.props();
    const { ctx, bbox } = this.plot;
    const ratio = uPlot.pxRatio;
    const view = this.view(bbox.left, bbox.top, bbox.width, bbox.height);
    const withBand = hasBands(curves);
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.lineJoin = ctx.lineCap = "round";
    ctx.lineWidth = (curves.length > 50 ? 1 : 1.5) * ratio;
    for (const curve of withBand ? curves : []) {
      ctx.globalAlpha = 0.18;
      ctx.fillStyle = curve.colour;
      ctx.beginPath();
      drawBand(ctx, curve, view);
      ctx.fill();
    }
    ctx.globalAlpha = curves.length > MANY ? 0.5 : curves.length > 50 ? 0.75 : 1;
    const seen = new Set<string>();
    for (const curve of curves) {
      ctx.setLineDash(seen.has(curve.colour) && withBand ? [5 * ratio, 4 * ratio] : []);
      seen.add(curve.colour);
      ctx.strokeStyle = curve.colour;
      ctx.beginPath();
      drawLine(ctx, curve, view, withBand);
      ctx.stroke();
    }
    ctx.globalAlpha = 1;
    this.drawOdd(ctx, curves, view, ratio);
    this.drawMarks(ctx, view, ratio);
    ctx.restore();
  }

  // NaN is a triangle at the lower edge, infinity a diamond at the upper one.
  private drawOdd(ctx: CanvasRenderingContext2D, curves: readonly Curve[], view: View, ratio: number): void {
    const { ofX } = placer(view);
    const size = ODD_SIZE * ratio;
    const drawn = new Set<string>();
    for (const { odd = [], colour } of curves) {
      ctx.fillStyle = colour;
      for (const { x, nan, inf } of odd) {
        const left = Math.round(ofX(x));
        if (!(x >= this.x[0] && x <= this.x[1]) || drawn.has(`${left}${nan > 0}${inf > 0}`)) continue;
        drawn.add(`${left}${nan > 0}${inf > 0}`);
        const bottom = view.top + view.height - 1;
        ctx.beginPath();
        if (nan > 0) outline(ctx, [[left - size, bottom], [left + size, bottom], [left, bottom - 2 * size]]);
        if (inf > 0) outline(ctx, [[left - size, view.top + size], [left, view.top], [left + size, view.top + size], [left, view.top + 2 * size]]);
        ctx.fill();
      }
    }
  }

  private drawMarks(ctx: CanvasRenderingContext2D, view: View, ratio: number): void {
    const { ofX } = placer(view);
    const colours = { info: "--soft", good: "--good", warn: "--warn", bad: "--bad" };
    ctx.setLineDash([3 * ratio, 3 * ratio]);
    ctx.lineWidth = ratio;
    ctx.font = `${12 * ratio}px system-ui, sans-serif`;
    ctx.textAlign = "center";
    for (const mark of (this.props().marks ?? []).slice(0, MOST_MARKS)) {
      if (!(mark.x >= this.x[0] && mark.x <= this.x[1])) continue;
      const left = Math.round(ofX(mark.x)) + 0.5;
      ctx.strokeStyle = ctx.fillStyle = this.colour(colours[mark.kind]);
      ctx.beginPath();
      ctx.moveTo(left, view.top + 16 * ratio);
      ctx.lineTo(left, view.top + view.height);
      ctx.stroke();
      ctx.fillText(mark.sign ?? SIGNS[mark.kind], left, view.top + 12 * ratio);
    }
  }

  private selected(plot: uPlot): void {
    const { left, width } = plot.select;
    if (width < LEAST_SELECTION) return;
    this.isSelecting = true; // the click that ends it picks nothing
    const range: Range = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.props().onZoom?.(range);
  }

  // The mouse moved, or left the chart.
  private moved(): void {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => {
      const { left = -1, top = -1 } = this.plot.cursor;
      const { curves, cursorGroup: group = "" } = this.props();
      if (left < 0 || top < 0) {
        highlighted.value = "";
        cursor.value = undefined;
        return;
      }
      const { clientWidth, clientHeight } = this.plot.over;
      const near = nearestCurve(curves, this.view(0, 0, clientWidth, clientHeight), left, top, NEAR);
      highlighted.value = near?.name ?? "";
      cursor.value = { x: this.plot.posToVal(left, "x"), group };
    });
  }

  private clicked(event: MouseEvent): void {
    if (this.isSelecting) {
      this.isSelecting = false;
      return;
    }
    const { curves, onPick } = this.props();
    if (!onPick) return;
    const { left, top } = this.plot.over.getBoundingClientRect();
    const { clientWidth, clientHeight } = this.plot.over;
    const curve = nearestCurve(curves, this.view(0, 0, clientWidth, clientHeight), event.clientX - left, event.clientY - top, NEAR);
    const x = this.plot.posToVal(event.clientX - left, "x");
    onPick((curve && pointAt(curve, x)?.x) ?? x, curve);
  }

  // The highlighted curve in front of the others, the cursor, and the text beside it.
  private show(name: string, place: { x: number; group: string } | undefined): void {
    const { clientWidth: width, clientHeight: height } = this.plot.over;
    const { curves, cursorGroup = "", marks = [], xText, isTime } = this.props();
    const view = this.view(0, 0, width, height);
    const here = place?.group === cursorGroup && place.x >= this.x[0] && place.x <= this.x[1] ? place.x : undefined;
    const left = here === undefined ? -10 : placer(view).ofX(here);
    const isOther = Math.abs((this.plot.cursor.left ?? -10) - left) > 1;
    if (isOther) this.plot.setCursor({ left, top: here === undefined ? -10 : 0 }, false);
    const curve = name ? curves.find((one) => one.name === name) : undefined;
    const point = curve && here !== undefined ? pointAt(curve, here) : undefined;
    this.drawAbove(curve, point, view);
    const lines = marks.filter((mark) => here !== undefined && Math.abs(placer(view).ofX(mark.x) - left) < 5).map((mark) => mark.text);
    if (curve && point) lines.unshift(`${curve.label}: ${textOf(point, curve)}`);
    if (here !== undefined && lines.length > 0) lines.push(textOfX(point?.x ?? here, xText, isTime));
    this.tip.hidden = lines.length === 0;
    this.tip.replaceChildren(...lines.map((line) => Object.assign(document.createElement("div"), { textContent: line })));
    this.tip.style.left = left < width / 2 ? `${left + 12}px` : "";
    this.tip.style.right = left < width / 2 ? "" : `${width - left + 12}px`;
  }

  private drawAbove(curve: Curve | undefined, point: { x: number; value: number; high: number } | undefined, view: View): void {
    const ratio = uPlot.pxRatio;
    const [width, height] = [Math.round(view.width * ratio), Math.round(view.height * ratio)];
    const ctx = this.above.getContext("2d") as CanvasRenderingContext2D;
    if (!curve && this.above.dataset.empty === "yes") return;
    if (this.above.width !== width || this.above.height !== height) [this.above.width, this.above.height] = [width, height];
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, view.width, view.height);
    this.above.dataset.empty = curve ? "" : "yes";
    if (!curve) return;
    if (this.props().curves.length > 1) {
      ctx.globalAlpha = 0.6;
      ctx.fillStyle = this.colour("--back");
      ctx.fillRect(0, 0, view.width, view.height);
      ctx.globalAlpha = 1;
    }
    ctx.lineJoin = "round";
    ctx.lineWidth = 2;
    ctx.strokeStyle = ctx.fillStyle = curve.colour;
    ctx.globalAlpha = 0.25;
    ctx.beginPath();
    drawBand(ctx, curve, view);
    ctx.fill();
    ctx.globalAlpha = 1;
    ctx.beginPath();
    drawLine(ctx, curve, view, true);
    ctx.stroke();
    if (!point) return;
    const { ofX, ofY } = placer(view);
    const value = Number.isFinite(point.value) ? point.value : point.high;
    ctx.beginPath();
    ctx.arc(ofX(point.x), ofY(value), 4, 0, 7);
    ctx.fill();
  }
}

function outline(ctx: CanvasRenderingContext2D, corners: readonly (readonly [number, number])[]): void {
  corners.forEach(([x, y], at) => (at === 0 ? ctx.moveTo(x, y) : ctx.lineTo(x, y)));
  ctx.closePath();
}

/** The value of a point: of a bucket its least and its largest one, of a group its mean and band. */
export function textOf(point: { value: number; low: number; high: number }, curve: Curve): string {
  const { value, low, high } = point;
  const range = low !== high && !(Number.isNaN(low) && Number.isNaN(high)) ? `${number(low)} … ${number(high)}` : "";
  if (curve.runs) return number(value) + (range && ` (${range})`);
  return range || number(Number.isNaN(value) ? low : value);
}

chinese({
  "Arrow keys move the cursor, + and - zoom, Escape shows all, Enter picks.": "方向键移动光标，+ 和 - 缩放，Esc 显示全部，回车选中。",
  "{n} marks": "{n} 个标记",
});
