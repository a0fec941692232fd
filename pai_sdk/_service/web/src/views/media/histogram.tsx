// The histograms of one tag of a run: steps to the right, values upwards, darker where more values are.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { change } from "../../address.ts";
import { count, number } from "../../format.ts";
import { isDark, styleColour } from "../../theme.ts";
import { chinese, t } from "../../words.ts";
import { binAt, binsOf, column, type Range } from "./heat.ts";
import { itemAt, type Item } from "./media_data.ts";

const ROWS = 60;
const HEIGHT = 180;
const MOST_COLUMNS = 400;
const LEAST_SEEN = 0.12; // of the darkest: a range with any value at all can be seen

interface Props {
  name: string;
  items: readonly Item[];
  step: number | undefined;
  range: Range;
}

export function Histogram({ name, items, step, range }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [pointed, setPointed] = useState<{ item: Item; value: number } | undefined>(undefined);
  const shown = useMemo(() => thinned(items), [items]);
  const columns = useMemo(() => shown.map((item) => column(item, range, ROWS)), [shown, range.least, range.largest]);
  const chosen = itemAt(shown, step);
  const at = chosen ? shown.indexOf(chosen) : -1;

  useEffect(() => {
    const element = canvas.current as HTMLCanvasElement;
    element.width = columns.length;
    element.height = ROWS;
    const paper = element.getContext("2d") as CanvasRenderingContext2D;
    const most = columns.reduce((sum, parts) => Math.max(sum, ...parts), 0);
    paper.fillStyle = styleColour("--accent");
    columns.forEach((parts, x) => {
      parts.forEach((part, row) => {
        if (part === 0) return;
        paper.globalAlpha = LEAST_SEEN + (1 - LEAST_SEEN) * Math.sqrt(part / most);
        paper.fillRect(x, ROWS - 1 - row, 1, 1);
      });
    });
  }, [columns, isDark.value]);

  const point = (event: PointerEvent): { item: Item; value: number } | undefined => {
    const { width, height } = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const item = shown[Math.max(0, Math.min(shown.length - 1, Math.floor((event.offsetX / width) * shown.length)))];
    return item && { item, value: range.largest - (event.offsetY / height) * (range.largest - range.least) };
  };
  return (
    <figure class="histogram">
      <div class="histogram-box">
        <div class="histogram-values soft" aria-hidden="true">
          <span>{number(range.largest, 3)}</span>
          <span>{number(range.least, 3)}</span>
        </div>
        <div class="histogram-area">
          <canvas
            ref={canvas}
            role="img"
            aria-label={t("{name}: {n} {n|histogram|histograms} from step {from} to {to}, values from {least} to {largest}; the table below has the numbers of one", {
              name,
              n: items.length,
              from: items[0]?.step ?? 0,
              to: items.at(-1)?.step ?? 0,
              least: number(range.least, 3),
              largest: number(range.largest, 3),
            })}
            style={{ height: `${HEIGHT}px` }}
            onPointerMove={(event) => setPointed(point(event))}
            onPointerLeave={() => setPointed(undefined)}
            onClick={() => pointed && change({ step: String(pointed.item.step) }, { replace: true })}
          />
          {step !== undefined && at >= 0 && <i class="histogram-step" style={{ left: `${((at + 0.5) / shown.length) * 100}%` }} />}
        </div>
        <span />
        <div class="histogram-steps soft" aria-hidden="true">
          <span>{items[0]?.step}</span>
          <span>{items.at(-1)?.step}</span>
        </div>
      </div>
      <figcaption class="soft">{pointed ? wordsOf(pointed.item, pointed.value) : chosen && summary(chosen)}</figcaption>
      {chosen && <Numbers item={chosen} />}
    </figure>
  );
}

// More histograms than the picture has columns: evenly chosen ones, with the first and the last.
function thinned(items: readonly Item[]): readonly Item[] {
  if (items.length <= MOST_COLUMNS) return items;
  return Array.from({ length: MOST_COLUMNS }, (_, at) => items[Math.round((at * (items.length - 1)) / (MOST_COLUMNS - 1))] as Item);
}

function summary(item: Item): string {
  const filled = binsOf(item).filter(([, , inside]) => inside > 0);
  if (filled.length === 0) return t("step {n}: no value", { n: item.step });
  const total = filled.reduce((sum, [, , inside]) => sum + inside, 0);
  return t("step {n}: {values} {values|value|values} from {least} to {largest}", {
    n: item.step,
    values: count(total),
    least: number(filled[0]?.[0], 4),
    largest: number(filled.at(-1)?.[1], 4),
  });
}

function wordsOf(item: Item, value: number): string {
  const bin = binAt(item, value);
  if (!bin) return t("step {n}: no value near {value}", { n: item.step, value: number(value, 3) });
  return t("step {n}: {values} {values|value|values} from {least} to {largest}", { n: item.step, values: count(bin[2]), least: number(bin[0], 4), largest: number(bin[1], 4) });
}

function Numbers({ item }: { item: Item }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{t("Numbers of step {n}", { n: item.step })}</summary>
      {isOpen && (
        <div class="scroll numbers" tabIndex={0} role="region" aria-label={t("Numbers of step {n}", { n: item.step })}>
          <table>
            <thead>
              <tr>
                <th scope="col" class="number">{t("from")}</th>
                <th scope="col" class="number">{t("to")}</th>
                <th scope="col" class="number">{t("values")}</th>
              </tr>
            </thead>
            <tbody>
              {binsOf(item).map(([left, right, inside], at) => (
                <tr key={at}>
                  <td class="number">{number(left)}</td>
                  <td class="number">{number(right)}</td>
                  <td class="number">{count(inside)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </details>
  );
}

chinese({
  "{name}: {n} {n|histogram|histograms} from step {from} to {to}, values from {least} to {largest}; the table below has the numbers of one": "{name}：第 {from} 步到第 {to} 步的 {n} 个直方图，值从 {least} 到 {largest}；下方表格有其中一个的数字",
  "step {n}: no value": "第 {n} 步：没有值",
  "step {n}: {values} {values|value|values} from {least} to {largest}": "第 {n} 步：{values} 个值，从 {least} 到 {largest}",
  "step {n}: no value near {value}": "第 {n} 步：{value} 附近没有值",
  "Numbers of step {n}": "第 {n} 步的数字",
  "from": "从",
  "to": "到",
});
