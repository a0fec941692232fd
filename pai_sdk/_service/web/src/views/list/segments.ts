// Which rows of a long table are in the document: those on the screen, and the row that has the focus.

interface Segment {
  from: number;
  to: number; // the first row behind it
  isGap: boolean; // an empty row as high as all its rows
}

/** Parts of `total` rows: the rows from `first` to `last` (not included) and the row `pinned`, with gaps between. */
export function segmentsOf(total: number, first: number, last: number, pinned: number): Segment[] {
  const parts: [number, number][] = [[Math.max(0, Math.min(first, total)), Math.min(last, total)]];
  if (pinned >= 0 && pinned < first) parts.unshift([pinned, pinned + 1]);
  else if (pinned >= last && pinned < total) parts.push([pinned, pinned + 1]);
  const segments: Segment[] = [];
  let at = 0;
  for (const [from, to] of parts) {
    if (from > at) segments.push({ from: at, to: from, isGap: true });
    if (to > from) segments.push({ from, to, isGap: false });
    at = Math.max(at, to);
  }
  if (at < total) segments.push({ from: at, to: total, isGap: true });
  return segments;
}
