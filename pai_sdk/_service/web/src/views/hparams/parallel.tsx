// Parallel coordinates: a line for each run, through its value on each axis. Dragging along an axis filters.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { styleColour, isDark } from "../../theme.ts";
import { chinese, t } from "../../words.ts";
import { type Axis, scaleColour, written } from "./axes.ts";

interface Props {
  axes: readonly Axis[];
  runs: readonly string[];
  part: ReadonlyMap<string, number>; // for the colour, from 0 to 1
  nameOf: (run: string) => string;
  onOpen: (run: string) => void;
  hint?: string; // instead of that on axes
  onRange?: (axis: Axis, from: number | undefined, to: number | undefined) => void;
}

const HEIGHT = 340;
const TOP = 44;
const BOTTOM = 40; // below: the place of runs that lack the value
const SIDE = 60;
const NEAR = 8;

export function Parallel({ axes, runs, part, nameOf, onOpen, hint, onRange }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const width = useSignal(800);
  const near = useSignal<string | undefined>(undefined);
  const brush = useSignal<{ axis: number; from: number; to: number } | undefined>(undefined);
  const step = axes.length > 1 ? (width.value - 2 * SIDE) / (axes.length - 1) : 0;
  const placeOfAxis = (at: number): number => (axes.length > 1 ? SIDE + at * step : width.value / 2);
  const placeOf = (axis: Axis, run: string): number => {
    const place = axis.place(run);
    return place === undefined ? HEIGHT - 10 : TOP + (1 - place) * (HEIGHT - TOP - BOTTOM);
  };

  useEffect(() => {
    const box = canvas.current?.closest(".scroll") as HTMLElement;
    const watcher = new ResizeObserver(() => (width.value = Math.max(box.clientWidth, 88 * axes.length)));
    watcher.observe(box);
    return () => watcher.disconnect();
  }, [axes.length]);

  useEffect(() => {
    const element = canvas.current as HTMLCanvasElement;
    const ratio = devicePixelRatio;
    [element.width, element.height] = [width.value * ratio, HEIGHT * ratio];
    const paper = element.getContext("2d") as CanvasRenderingContext2D;
    paper.scale(ratio, ratio);
    paper.lineJoin = "round";
    const draw = (run: string, colour: string, thickness: number): void => {
      paper.strokeStyle = colour;
      paper.lineWidth = thickness;
      paper.beginPath();
      axes.forEach((axis, at) => paper.lineTo(placeOfAxis(at), placeOf(axis, run)));
      paper.stroke();
    };
    paper.globalAlpha = runs.length > 300 ? 0.35 : 0.7;
    const sorted = [...runs].sort((one, other) => (part.get(one) ?? -1) - (part.get(other) ?? -1)); // the best on top
    for (const run of sorted) draw(run, part.has(run) ? scaleColour(part.get(run) as number) : styleColour("--line"), 1.25);
    paper.globalAlpha = 1;
    if (near.value) draw(near.value, styleColour("--text"), 3);
  }, [axes, runs, part, width.value, near.value, isDark.value]);

  const find = (event: PointerEvent): void => {
    const [x, y] = [event.offsetX, event.offsetY];
    const left = Math.max(0, Math.min(axes.length - 2, Math.floor((x - SIDE) / (step || 1))));
    const [one, other] = [axes[left], axes[left + 1] ?? axes[left]];
    if (!one || !other) return;
    const along = step ? (x - placeOfAxis(left)) / step : 0;
    let [best, distance] = [undefined as string | undefined, NEAR];
    for (const run of runs) {
      const height = placeOf(one, run) * (1 - along) + placeOf(other, run) * along;
      if (Math.abs(height - y) < distance) [best, distance] = [run, Math.abs(height - y)];
    }
    near.value = best;
  };
  const valueAt = (axis: Axis, y: number): number => axis.valueAt(Math.max(0, Math.min(1, 1 - (y - TOP) / (HEIGHT - TOP - BOTTOM))));
  const endBrush = (): void => {
    const drawn = brush.value;
    const axis = drawn && axes[drawn.axis];
    brush.value = undefined;
    if (!drawn || !axis || Math.abs(drawn.from - drawn.to) < 4) return;
    onRange?.(axis, valueAt(axis, Math.max(drawn.from, drawn.to)), valueAt(axis, Math.min(drawn.from, drawn.to)));
  };

  return (
    <figure class="parallel">
      <div class="scroll" tabIndex={0} role="group" aria-label={t("Parallel coordinates")}>
        <div style={{ position: "relative", width: `${width.value}px`, height: `${HEIGHT}px` }}>
          <canvas
            ref={canvas}
            role="img"
            aria-label={t("{n} {n|run|runs} as lines through {m} {m|axis|axes}; the tables below have the same values", { n: runs.length, m: axes.length })}
            style={{ width: `${width.value}px`, height: `${HEIGHT}px`, cursor: near.value ? "pointer" : "default" }}
            onPointerMove={find}
            onPointerLeave={() => (near.value = undefined)}
            onClick={() => near.value && onOpen(near.value)}
          />
          <svg width={width.value} height={HEIGHT} aria-hidden="true">
            {axes.map((axis, at) => (
              <g key={axis.name} transform={`translate(${placeOfAxis(at)} 0)`}>
                <text y={16} text-anchor="middle" class={axis.isMetric ? "axis-name metric" : "axis-name"}>{short(axis.name, step || undefined)}</text>
                <line y1={TOP} y2={HEIGHT - BOTTOM} class="axis-line" />
                {axis.ticks.map((tick) => (
                  <text key={tick.at} x={at === axes.length - 1 ? -6 : 6} y={TOP + (1 - tick.at) * (HEIGHT - TOP - BOTTOM) + 4} text-anchor={at === axes.length - 1 ? "end" : "start"} class="axis-tick">
                    {short(tick.text)}
                  </text>
                ))}
                {axis.isNumeric && onRange && (
                  <rect
                    x={-9}
                    y={TOP - 8}
                    width={18}
                    height={HEIGHT - TOP - BOTTOM + 16}
                    class="axis-brush"
                    onPointerDown={(event) => {
                      event.currentTarget.setPointerCapture(event.pointerId);
                      brush.value = { axis: at, from: event.offsetY, to: event.offsetY };
                    }}
                    onPointerMove={(event) => brush.value && (brush.value = { ...brush.value, to: event.offsetY })}
                    onPointerUp={endBrush}
                  />
                )}
                {brush.value?.axis === at && <rect x={-9} width={18} y={Math.min(brush.value.from, brush.value.to)} height={Math.abs(brush.value.to - brush.value.from)} class="brushed" />}
              </g>
            ))}
          </svg>
        </div>
      </div>
      <figcaption class="soft" aria-live="polite">
        {near.value
          ? `${nameOf(near.value)}: ${axes.map((axis) => `${axis.name} ${written(axis.value(near.value as string))}`).join(", ")}`
          : hint ?? t("Drag along an axis to filter; click a line to open its {run}. The lowest places are of {runs} without the value.")}
      </figcaption>
    </figure>
  );
}

/** As much of a text as so many pixels have room for, and at least something of it. */
function short(text: string, room = 144): string {
  const most = Math.min(16, Math.max(6, Math.floor(room / 9)));
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

chinese({
  "Parallel coordinates": "平行坐标",
  "{n} {n|run|runs} as lines through {m} {m|axis|axes}; the tables below have the same values": "{n} 个{run}，穿过 {m} 条轴的折线；下方表格有相同的值",
  "Drag along an axis to filter; click a line to open its {run}. The lowest places are of {runs} without the value.": "沿轴拖动可筛选；点击线条打开该{run}。最低处是没有该值的{run}。",
});
