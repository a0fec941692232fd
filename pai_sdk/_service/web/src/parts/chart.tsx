// A chart of curves on a canvas, drawn from typed arrays.
//
//   <Chart title="loss" curves={curves} summary="2 curves, all 400 points" view={[0, 100]} onZoom={…} onPick={…} />
//
// Curves need no common x. What is nearest to the cursor is highlighted on a canvas above, so the curves are not drawn
// again for it; the text beside it has the values of all curves there. `highlighted` and `cursor` are shared by all
// charts of the page.
import { batch, effect, signal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { count as countText, duration, moment, number } from "../format.ts";
import { isDark, styleColour } from "../theme.ts";
import { chinese, t } from "../words.ts";
import { drawBand, drawLine, hasBands, heightOf, nearestCurve, nearestIndex, nearestX, ODD_SPACE, oddOutline, oddRanges, placer, pointAt, pointsNear, rangeOfX, rangeOfY } from "./curve_data.ts";
import type { Curve, Point, Range, View } from "./curve_data.ts";
import type { PictureParts } from "./picture.ts";
import { durationTicks, linearTicks, logTicks, timeTicks, type Tick } from "./ticks.ts";
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
  parts(): PictureParts; // for a picture as a file
}

interface ChartProps {
  title: string;
  curves: readonly Curve[];
  summary: string; // what the chart shows, for people who do not see it
  height?: number; // in pixels; without it, the chart has the usual ratio to its width
  isTime?: boolean; // x is in seconds since 1970
  isDuration?: boolean; // x is in seconds
  xText?: (x: number) => string; // x in words, for the text at the cursor
  view?: Range | undefined; // the part of x that is shown; all of it without
  rangeY?: Range | undefined; // the part of y; all values of the view without
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
export const cursor = signal<{ x: number; group: string; chart?: object; top?: number } | undefined>(undefined);

const SIGNS = { info: "◆", good: "✓", warn: "!", bad: "✕" };
const NONE: readonly Mark[] = [];
const MANY = 200; // curves; above, they are drawn more faintly
const PAUSE_MS = 250; // at least, between two drawings of new points
const REST = 4; // and so many times as long as the last drawing took
const NEAR = 24; // pixels
const DOUBLE_CLICK_MS = 250; // which shows all of x, and picks nothing
const MOST_ROWS = 12; // of the text at the cursor
const FONT = "12px system-ui, sans-serif";
const CHARACTER = 7; // pixels, of a number in this font
const LEAST_SELECTION = 6; // pixels; less is a click
const MOST_MARKS = 200;
const LEAST_PART = 1e-6; // of x that + zooms to

export function Chart(props: ChartProps) {
  const { title, summary, curves, marks = NONE, height } = props;
  const box = useRef<HTMLDivElement>(null);
  const drawing = useRef<Drawing | undefined>(undefined);
  const said = useSignal(""); // by keyboard only: a screen reader reads it
  const latest = useRef(props);
  latest.current = props;

  useEffect(() => {
    const made = (drawing.current = new Drawing(box.current as HTMLElement, () => latest.current));
    if (props.handle) props.handle.current = made;
    return () => made.end();
  }, []);
  useEffect(() => drawing.current?.changed(false), [curves]);
  useEffect(() => drawing.current?.changed(true), [props.view?.[0], props.view?.[1], props.rangeY?.[0], props.rangeY?.[1], props.logX, props.logY, height, marks]);

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
        {...(height ? { style: { height: `${height}px` } } : {})}
        onKeyDown={onKeyDown}
      />
      <span class="hidden-text" aria-live="polite">{said}</span>
    </div>
  );
}

/** The marks of one or more charts as a list, for all who cannot point at them. */
export function MarkList({ marks, ...axis }: { marks: readonly Mark[] } & AxisText) {
  if (marks.length === 0) return null;
  return (
    <details class="chart-marks">
      <summary>{t("{n} {n|mark|marks}", { n: marks.length })}</summary>
      <ul>
        {marks.slice(0, MOST_MARKS).map((mark) => (
          <li key={`${mark.x}${mark.text}`}>
            <span class={mark.kind} aria-hidden="true">{mark.sign ?? SIGNS[mark.kind]}</span> {textOfX(mark.x, axis)}: {mark.text}
          </li>
        ))}
      </ul>
    </details>
  );
}

type AxisText = Pick<ChartProps, "xText" | "isTime" | "isDuration">;

function textOfX(x: number, { xText, isTime, isDuration }: AxisText): string {
  return xText ? xText(x) : isTime ? moment(x) : isDuration ? duration(x) : number(x, 7);
}

/** What is drawn of one chart: a canvas with axes and curves, and above it what follows the mouse. */
class Drawing implements ChartHandle {
  private readonly canvas: HTMLCanvasElement;
  private readonly area: HTMLElement; // of the curves, without the axes
  private readonly above: HTMLCanvasElement; // for what is highlighted
  private readonly line: HTMLElement; // the cursor
  private readonly selection: HTMLElement;
  private readonly tip: HTMLElement;
  private readonly sizes: ResizeObserver;
  private readonly ends: (() => void)[] = [];
  private readonly colours = new Map<string, string>();
  private view: View = { x: [0, 1], y: [0, 1], logX: false, logY: false, left: 0, top: 0, width: 1, height: 1 };
  private ticksX: Tick[] = [];
  private ticksY: Tick[] = [];
  private waiting: ReturnType<typeof setTimeout> | undefined;
  private drawnAt = 0;
  private tookMs = 0;
  private drawn: unknown[] = [];
  private picking: ReturnType<typeof setTimeout> | undefined;
  private pressedAt = NaN; // where the mouse was pressed
  private said = ""; // of the text at the cursor: the highlighted curve and the place
  private frame = 0;

  constructor(
    private readonly box: HTMLElement,
    private readonly props: () => ChartProps,
  ) {
    const add = <T extends keyof HTMLElementTagNameMap>(parent: HTMLElement, kind: T, name: string): HTMLElementTagNameMap[T] => {
      const made = parent.appendChild(document.createElement(kind));
      made.className = name;
      return made;
    };
    this.canvas = add(box, "canvas", "chart-canvas");
    this.area = add(box, "div", "chart-area");
    this.above = add(this.area, "canvas", "chart-above");
    this.line = add(this.area, "div", "chart-cursor");
    this.selection = add(this.area, "div", "chart-selection");
    this.tip = add(this.area, "div", "chart-tip");
    this.area.addEventListener("pointermove", (event) => this.moved(event));
    this.area.addEventListener("pointerleave", () => this.left());
    this.area.addEventListener("pointerdown", (event) => this.pressed(event));
    this.area.addEventListener("pointerup", (event) => this.released(event));
    this.area.addEventListener("pointercancel", () => this.select(NaN, NaN));
    this.area.addEventListener("dblclick", () => {
      clearTimeout(this.picking);
      this.props().onZoom?.(undefined);
    });
    this.sizes = new ResizeObserver(() => box.clientWidth !== this.canvas.clientWidth && this.draw());
    this.ends.push(
      effect(() => {
        void isDark.value;
        this.colours.clear();
        this.draw();
      }),
    );
    this.sizes.observe(box);
    this.ends.push(effect(() => this.show(highlighted.value, cursor.value)));
  }

  end(): void {
    clearTimeout(this.waiting);
    clearTimeout(this.picking);
    cancelAnimationFrame(this.frame);
    this.sizes.disconnect();
    for (const end of this.ends) end();
    this.box.replaceChildren();
  }

  /** Draws what is new: at once after a person did something, otherwise not too often. */
  changed(atOnce: boolean): void {
    if (this.wanted().every((one, at) => one === this.drawn[at])) return;
    clearTimeout(this.waiting);
    const wait = this.drawnAt + Math.max(PAUSE_MS, REST * this.tookMs) - performance.now();
    if (atOnce || wait <= 0) this.draw();
    else this.waiting = setTimeout(() => this.draw(), wait);
  }

  parts(): PictureParts {
    const { title, curves } = this.props();
    const { x, y, logX, logY } = this.view;
    return { title, curves, x, y, logX, logY, ticksX: this.ticksX, ticksY: this.ticksY };
  }

  /** What a key does; the text at the cursor, or undefined for a key of no use here. */
  key(key: string, isLarge: boolean): string | undefined {
    const { curves, onZoom, onPick, cursorGroup = "" } = this.props();
    this.changed(true); // new curves may be waiting to be drawn, and the key is about them
    const [from, to] = this.view.x;
    const place = cursor.value?.group === cursorGroup ? cursor.value.x : (from + to) / 2;
    const at = Math.max(0, curves.findIndex((curve) => curve.name === highlighted.value));
    const curve = curves[at];
    const index = curve ? nearestIndex(curve.x, place) : 0;
    const step = isLarge ? 10 : 1;
    const moveTo = (index: number): void => {
      const x = curve?.x[Math.min(Math.max(index, 0), curve.x.length - 1)];
      if (curve && x !== undefined) this.point(x, curve.name);
    };
    const zoom = (factor: number): void => {
      if ((to - from) * factor > LEAST_PART * Math.abs(place)) onZoom?.([place - (place - from) * factor, place + (to - place) * factor]);
    };
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
    return this.said;
  }

  private point(x: number | undefined, name: string, top?: number): void {
    const { cursorGroup: group = "" } = this.props();
    batch(() => {
      highlighted.value = name;
      cursor.value = x === undefined ? undefined : { x, group, chart: this, ...(top === undefined ? {} : { top }) };
    });
  }

  // ---- what is drawn once

  private wanted(): unknown[] {
    const { curves, view, rangeY, marks, height, logX, logY } = this.props();
    return [curves, view?.[0], view?.[1], rangeY?.[0], rangeY?.[1], marks, height, logX, logY];
  }

  private draw(): void {
    this.drawn = this.wanted();
    this.drawnAt = performance.now();
    this.measure();
    const ctx = sized(this.canvas, this.box.clientWidth, this.box.clientHeight);
    this.drawAxes(ctx);
    ctx.beginPath();
    ctx.rect(this.view.left, this.view.top, this.view.width, this.view.height);
    ctx.clip();
    this.drawCurves(ctx);
    this.drawOdd(ctx);
    this.drawMarks(ctx);
    this.box.dataset.curves = String(this.props().curves.length); // which are drawn now, for tests and measurements
    this.show(highlighted.peek(), cursor.peek());
    this.tookMs = performance.now() - this.drawnAt;
  }

  // The part of x, the values in it, and what their names need of the width.
  private measure(): void {
    const { curves, view, rangeY, logX = false, logY = false, isTime, isDuration } = this.props();
    const all = rangeOfX(curves, logX);
    const asked: Range | undefined = view && logX && view[0] <= 0 ? [all?.[0] ?? view[1] / 1000, view[1]] : view;
    const x = asked && asked[0] < asked[1] ? asked : (all ?? [logX ? 1 : 0, logX ? 10 : 1]);
    const y = rangeY ?? rangeOfY(curves, x, logY) ?? [logY ? 0.1 : 0, 1];
    const area = { top: 12, height: Math.max(40, this.box.clientHeight - 12 - 24) };
    this.ticksY = (logY ? logTicks : linearTicks)(y, Math.max(3, area.height / 34));
    const left = 16 + CHARACTER * Math.max(2, ...this.ticksY.map(([, text]) => text.length));
    const width = Math.max(40, this.box.clientWidth - left - 14);
    const kind = logX ? logTicks : isTime ? timeTicks : isDuration ? durationTicks : linearTicks;
    this.ticksX = kind(x, Math.max(2, width / (isTime ? 100 : 76)));
    this.view = { x, y, logX, logY, left, width, ...area };
    Object.assign(this.area.style, { left: `${left}px`, top: `${area.top}px`, width: `${width}px`, height: `${area.height}px` });
  }

  private drawAxes(ctx: CanvasRenderingContext2D): void {
    const { left, top, width, height } = this.view;
    const { ofX, ofY } = placer(this.view);
    ctx.font = FONT;
    ctx.fillStyle = this.colour("--soft");
    ctx.strokeStyle = this.colour("--grid");
    ctx.beginPath();
    ctx.textAlign = "center";
    let free = 0; // names do not stand on each other, nor beyond the edge
    for (const [value, text] of this.ticksX) {
      const at = Math.round(ofX(value)) + 0.5;
      ctx.moveTo(at, top);
      ctx.lineTo(at, top + height);
      const half = ctx.measureText(text).width / 2;
      if (at - half < free || at + half > left + width + 14) continue;
      ctx.fillText(text, at, top + height + 16);
      free = at + half + 8;
    }
    ctx.textAlign = "right";
    for (const [value, text] of this.ticksY) {
      const at = Math.round(ofY(value)) + 0.5;
      ctx.moveTo(left, at);
      ctx.lineTo(left + width, at);
      ctx.fillText(text, left - 6, at + 4);
    }
    ctx.stroke();
  }

  private drawCurves(ctx: CanvasRenderingContext2D): void {
    const { curves } = this.props();
    const withBand = hasBands(curves);
    ctx.lineJoin = ctx.lineCap = "round";
    ctx.lineWidth = curves.length > 50 ? 1 : 1.5;
    for (const curve of withBand ? curves : []) {
      ctx.globalAlpha = 0.18;
      ctx.fillStyle = curve.colour;
      ctx.beginPath();
      drawBand(ctx, curve, this.view);
      ctx.fill();
    }
    ctx.globalAlpha = curves.length > MANY ? 0.5 : curves.length > 50 ? 0.75 : 1;
    const seen = new Set<string>();
    for (const curve of curves) {
      ctx.setLineDash(seen.has(curve.colour) && withBand ? [5, 4] : []);
      seen.add(curve.colour);
      ctx.strokeStyle = curve.colour;
      ctx.beginPath();
      drawLine(ctx, curve, this.view, withBand);
      ctx.stroke();
    }
    ctx.globalAlpha = 1;
  }

  // NaN is a mark at the lower edge, infinity one at the upper edge; where they are dense, marks are one bar.
  private drawOdd(ctx: CanvasRenderingContext2D): void {
    const { top, height, x } = this.view;
    const { ofX } = placer(this.view);
    for (const kind of ["nan", "inf"] as const) {
      const [edge, up] = kind === "nan" ? [top + height, -1] : [top, 1];
      for (const { from, to, colour } of oddRanges(this.props().curves, kind, { ofX, within: x, space: ODD_SPACE })) {
        ctx.fillStyle = colour || this.colour("--bad");
        ctx.beginPath();
        outline(ctx, oddOutline(from, to, edge, up));
        ctx.fill();
      }
    }
  }

  private drawMarks(ctx: CanvasRenderingContext2D): void {
    const { top, height, x: [from, to] } = this.view;
    const { ofX } = placer(this.view);
    const colours = { info: "--soft", good: "--good", warn: "--warn", bad: "--bad" };
    ctx.setLineDash([3, 3]);
    ctx.lineWidth = 1;
    ctx.textAlign = "center";
    for (const mark of (this.props().marks ?? []).slice(0, MOST_MARKS)) {
      if (!(mark.x >= from && mark.x <= to)) continue;
      const left = Math.round(ofX(mark.x)) + 0.5;
      ctx.strokeStyle = ctx.fillStyle = this.colour(colours[mark.kind]);
      ctx.beginPath();
      ctx.moveTo(left, top + 14);
      ctx.lineTo(left, top + height);
      ctx.stroke();
      ctx.fillText(mark.sign ?? SIGNS[mark.kind], left, top + 11);
    }
  }

  private colour(name: string): string {
    let known = this.colours.get(name);
    if (!known) this.colours.set(name, (known = styleColour(name)));
    return known;
  }

  // ---- the mouse, and fingers: a drag to the side selects, a click picks

  private pressed(event: PointerEvent): void {
    if (event.button !== 0 || !event.isPrimary) return;
    this.pressedAt = this.placeOf(event)[0];
    this.area.setPointerCapture(event.pointerId);
    this.moved(event);
  }

  private moved(event: PointerEvent): void {
    const [left, top] = this.placeOf(event);
    this.select(this.pressedAt, left);
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => {
      const { curves } = this.props();
      const [x, near] = [this.xAt(left), nearestCurve(curves, this.inside(), left, top, NEAR)];
      this.point((near && pointAt(near, x)?.x) ?? nearestX(curves, x) ?? x, near?.name ?? "", top);
    });
  }

  private released(event: PointerEvent): void {
    const [begin, [left, top]] = [this.pressedAt, this.placeOf(event)];
    const { curves, onZoom, onPick } = this.props();
    this.select(NaN, NaN);
    if (Number.isNaN(begin)) return;
    if (onZoom && Math.abs(left - begin) >= LEAST_SELECTION) {
      onZoom([this.xAt(Math.min(begin, left)), this.xAt(Math.max(begin, left))]);
    } else if (onPick) {
      const near = nearestCurve(curves, this.inside(), left, top, NEAR);
      const x = (near && pointAt(near, this.xAt(left))?.x) ?? this.xAt(left);
      clearTimeout(this.picking);
      this.picking = setTimeout(() => onPick(x, near), onZoom ? DOUBLE_CLICK_MS : 0);
    }
  }

  private left(): void {
    cancelAnimationFrame(this.frame);
    this.point(undefined, "");
  }

  private select(from: number, to: number): void {
    if (Number.isNaN(to)) this.pressedAt = NaN;
    const isShown = Boolean(this.props().onZoom) && Math.abs(to - from) >= LEAST_SELECTION;
    this.selection.hidden = !isShown;
    if (isShown) Object.assign(this.selection.style, { left: `${Math.min(from, to)}px`, width: `${Math.abs(to - from)}px` });
  }

  private placeOf(event: PointerEvent): [number, number] {
    const { left, top } = this.area.getBoundingClientRect();
    return [Math.min(Math.max(event.clientX - left, 0), this.view.width), event.clientY - top];
  }

  private xAt(left: number): number {
    const { x: [from, to], logX, width } = this.view;
    return logX ? from * (to / from) ** (left / width) : from + (to - from) * (left / width);
  }

  // The view as the area has it, without the axes.
  private inside(): View {
    return { ...this.view, left: 0, top: 0 };
  }

  // ---- what follows the mouse

  // The highlighted curve in front of the others, the cursor, and the text beside it.
  private show(name: string, place: typeof cursor.value): void {
    const { curves, cursorGroup = "", marks = [] } = this.props();
    const view = this.inside();
    const { x: [from, to], width } = view;
    const { ofX, ofY } = placer(view);
    const isHere = place?.group === cursorGroup && ofX(place.x) >= -1 && ofX(place.x) <= width + 1;
    const here = isHere ? Math.min(Math.max(place.x, from), to) : undefined;
    const left = here === undefined ? 0 : ofX(here);
    const curve = name ? curves.find((one) => one.name === name) : undefined;
    const point = curve && here !== undefined ? pointAt(curve, here) : undefined;
    this.drawAbove(curve, point);
    this.line.hidden = here === undefined;
    this.line.style.left = `${left}px`;
    const told = marks.filter((mark) => here !== undefined && Math.abs(ofX(mark.x) - left) < 5).map((mark) => mark.text);
    const x = here === undefined ? "" : textOfX(point?.x ?? here, this.props());
    const lines = [...told.map((text) => part("div", "", text))];
    if (here !== undefined && place?.chart === this) lines.unshift(...this.rows(here, place.top ?? (point ? ofY(heightOf(point)) : view.height / 2), curve));
    else if (curve && point) lines.unshift(row(curve, textOf(point, curve), true));
    if (lines.length > 0) lines.unshift(part("div", "chart-tip-x", x));
    this.said = [...(curve && point ? [`${curve.label}: ${textOf(point, curve)}`] : []), ...told, x].filter(Boolean).join(", ");
    this.tip.hidden = lines.length === 0;
    this.tip.replaceChildren(...lines);
    const room = this.area.getBoundingClientRect();
    const isLow = !this.tip.hidden && room.top + room.height / 2 > window.innerHeight / 2;
    const side = left < width / 2 ? { left: `${left + 12}px`, right: "" } : { left: "", right: `${width - left + 12}px` };
    Object.assign(this.tip.style, side, isLow ? { top: "auto", bottom: "4px" } : { top: "4px", bottom: "" });
  }

  // The curves at the cursor with their values, and how many more there are.
  private rows(place: number, top: number, hot: Curve | undefined): HTMLElement[] {
    const { rows, count } = pointsNear(this.props().curves, this.inside(), place, top, MOST_ROWS);
    const found = rows.map(({ curve, point }) => {
      const away = point.x === place ? "" : ` (${textOfX(point.x, this.props())})`; // a curve without a point at this x
      return row(curve, textOf(point, curve) + away, curve === hot);
    });
    if (count > rows.length) found.push(part("div", "chart-tip-x", t("and {n} more", { n: countText(count - rows.length) })));
    return found;
  }

  private drawAbove(curve: Curve | undefined, point: Point | undefined): void {
    if (!curve && this.above.hidden) return;
    this.above.hidden = !curve;
    if (!curve) return;
    const view = this.inside();
    const ctx = sized(this.above, view.width, view.height);
    if (this.props().curves.length > 1) {
      ctx.globalAlpha = 0.6;
      ctx.fillStyle = this.colour("--back");
      ctx.fillRect(0, 0, view.width, view.height);
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
    ctx.beginPath();
    ctx.arc(ofX(point.x), ofY(heightOf(point)), 4, 0, 7);
    ctx.fill();
  }
}

function part(kind: string, name: string, text: string): HTMLElement {
  return Object.assign(document.createElement(kind), { className: name, textContent: text });
}

function row({ colour, label }: Curve, text: string, isHot: boolean): HTMLElement {
  const made = part("div", isHot ? "chart-tip-row hot" : "chart-tip-row", "");
  made.append(part("i", "swatch", ""), part("span", "", label), part("b", "", text));
  (made.firstChild as HTMLElement).style.background = colour;
  return made;
}

/** An empty canvas of a size, sharp on every screen. */
function sized(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = window.devicePixelRatio || 1;
  [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
  Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  const context = canvas.getContext("2d") as CanvasRenderingContext2D;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

function outline(ctx: CanvasRenderingContext2D, corners: readonly (readonly [number, number])[]): void {
  corners.forEach(([x, y], at) => (at === 0 ? ctx.moveTo(x, y) : ctx.lineTo(x, y)));
  ctx.closePath();
}

/** The value of a point: of a bucket its least and its largest one, of a group its mean and band. */
export function textOf(point: { value: number; low: number; high: number }, curve: Curve): string {
  const { value, low, high } = point;
  const range = low !== high && !(Number.isNaN(low) && Number.isNaN(high)) ? `${number(low, 4)} … ${number(high, 4)}` : "";
  if (curve.runs) return number(value) + (range && ` (${range})`);
  return range || number(Number.isNaN(value) ? low : value);
}

chinese({
  "Arrow keys move the cursor, + and - zoom, Escape shows all, Enter picks.": "方向键移动光标，+ 和 - 缩放，Esc 显示全部，回车选中。",
  "{n} {n|mark|marks}": "{n} 个标记",
  "and {n} more": "另有 {n} 个",
});
