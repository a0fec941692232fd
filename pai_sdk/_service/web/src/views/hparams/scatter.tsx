// A point for each run: any hyperparameter or the metric against another one, with the colour of a third.
import { useSignal } from "@preact/signals";
import { number } from "../../format.ts";
import { isPhone } from "../../parts/clock.ts";
import { chinese, t } from "../../words.ts";
import { type Axis, rankCorrelation, scaleColour, written } from "./axes.ts";

interface Props {
  across: Axis;
  up: Axis;
  runs: readonly string[];
  part: ReadonlyMap<string, number>;
  line?: readonly string[]; // runs that steps join, from left to right
  hint?: string;
  nameOf: (run: string) => string;
  hrefOf: (run: string) => string;
}

const [LEFT, RIGHT, TOP, BOTTOM] = [70, 20, 16, 46];

export function Scatter({ across, up, runs, part, line, hint, nameOf, hrefOf }: Props) {
  const near = useSignal("");
  const [width, height] = isPhone.value ? [366, 300] : [640, 360]; // about what the screen has, so that texts keep their size
  const points = runs.flatMap((run) => {
    const [x, y] = [across.place(run), up.place(run)];
    return x === undefined || y === undefined ? [] : [{ run, x: LEFT + x * (width - LEFT - RIGHT), y: height - BOTTOM - y * (height - TOP - BOTTOM) }];
  });
  points.sort((one, other) => one.x - other.x); // the order of the arrow keys
  const missing = runs.length - points.length;
  const pairs = points.map(({ run }) => [across.value(run), up.value(run)]).filter((pair): pair is [number, number] => pair.every((value) => typeof value === "number"));
  const steps = points.filter(({ run }) => line?.includes(run)).map(({ x, y }, at) => (at === 0 ? `M${x} ${y}` : `H${x}V${y}`));
  const correlation = rankCorrelation(pairs);
  const moved = (event: KeyboardEvent): void => {
    const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const points = way && (event.currentTarget as Element).querySelectorAll<SVGAElement>("a");
    if (!points) return;
    event.preventDefault();
    points[([...points].indexOf(document.activeElement as SVGAElement) + way + points.length) % points.length]?.focus();
  };
  return (
    <figure class="scatter">
      <svg viewBox={`0 0 ${width} ${height}`} role="group" aria-label={t("{y} against {x}: {n} {n|run|runs}", { x: across.name, y: up.name, n: points.length })} onKeyDown={moved}>
        {across.ticks.map((tick) => (
          <g key={tick.at} transform={`translate(${LEFT + tick.at * (width - LEFT - RIGHT)} 0)`}>
            <line y1={TOP} y2={height - BOTTOM} class="axis-grid" />
            <text y={height - BOTTOM + 18} text-anchor="middle" class="axis-tick">{tick.text}</text>
          </g>
        ))}
        {up.ticks.map((tick) => (
          <g key={tick.at} transform={`translate(0 ${height - BOTTOM - tick.at * (height - TOP - BOTTOM)})`}>
            <line x1={LEFT} x2={width - RIGHT} class="axis-grid" />
            <text x={LEFT - 8} y={4} text-anchor="end" class="axis-tick">{tick.text}</text>
          </g>
        ))}
        <text x={(LEFT + width - RIGHT) / 2} y={height - 8} text-anchor="middle" class="axis-name">{across.name}{across.isLog ? " (log)" : ""}</text>
        <text transform={`translate(14 ${(TOP + height - BOTTOM) / 2}) rotate(-90)`} text-anchor="middle" class="axis-name">{up.name}{up.isLog ? " (log)" : ""}</text>
        {steps.length > 0 && <path d={`${steps.join("")}H${points.at(-1)?.x}`} class="best-line" />}
        {points.map(({ run, x, y }, at) => (
          <a key={run} href={hrefOf(run)} tabIndex={(near.value ? run === near.value : at === 0) ? 0 : -1} aria-label={textOf(run)} onFocus={() => (near.value = run)} onPointerEnter={() => (near.value = run)}>
            <circle cx={x} cy={y} r={run === near.value ? 7 : 4} fill={part.has(run) ? scaleColour(part.get(run) as number) : "var(--soft)"} class="point" />
          </a>
        ))}
      </svg>
      <figcaption class="soft" aria-live="polite">
        {correlation !== undefined && !line && `${t("rank correlation")} ${number(correlation, 2)}. `}
        {near.value ? textOf(near.value) : missing > 0 ? t("{n} {n|run|runs} {n|lacks|lack} one of the two values.", { n: missing }) : hint}
      </figcaption>
    </figure>
  );

  function textOf(run: string): string {
    return `${nameOf(run)}: ${across.name} ${written(across.value(run))}, ${up.name} ${written(up.value(run))}`;
  }
}

chinese({
  "{y} against {x}: {n} {n|run|runs}": "{y} 对 {x}：{n} 个{run}",
  "{n} {n|run|runs} {n|lacks|lack} one of the two values.": "{n} 个{run}缺少其中一个值。",
});
