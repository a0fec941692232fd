// Where the hits of a search are, drawn beside the scroll bar.
import type { LogSearch } from "./search.ts";

/** Draws the hits: exactly where they are known, otherwise as the density of a stretch of the log. */
export function drawStrip(canvas: HTMLCanvasElement, search: LogSearch | undefined, total: number, isMerged: boolean, current: number): void {
  const scale = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth * scale, canvas.clientHeight * scale];
  if (!search || !width || !height || !total) return;
  [canvas.width, canvas.height] = [width, height];
  const pen = canvas.getContext("2d") as CanvasRenderingContext2D;
  const style = getComputedStyle(canvas);
  const at = (line: number): number => (line / total) * height;
  pen.fillStyle = style.color;
  // Hits are numbered within their instance, so that their places in the merged log are not known.
  if (!isMerged) {
    const densest = Math.max(...search.stretches.map((one) => one.count / (one.lastLine - one.firstLine || 1)), 0);
    for (const { firstLine, lastLine, count, hits } of search.stretches) {
      if (count === 0) continue;
      pen.globalAlpha = hits ? 0.6 : 0.25 + (0.75 * count) / (lastLine - firstLine || 1) / densest;
      if (hits) for (const hit of hits) pen.fillRect(0, at(hit.line), width, Math.max(scale, 1));
      else pen.fillRect(0, at(firstLine), width, Math.max(scale, at(lastLine) - at(firstLine)));
    }
  }
  pen.globalAlpha = 1;
  pen.fillStyle = style.borderColor;
  if (current >= 0) pen.fillRect(0, at(current) - scale, width, 3 * scale);
}
