// What happened to a job, as rows: a status with its event in one, repeated events as one.
import type { Mark } from "./wire.ts";

export interface Row extends Mark {
  status: string; // of a row of kind `status`
  earlier: Mark[]; // that say the same, but for numbers
}

const SAME_MOMENT_S = 0.1;
const [LONG, SENTENCE] = [120, 80]; // characters
const APART = /^(Instance \S+ is|Jobs) /; // events of instances, notices that each job has

/** The rows in the order of their last times. Ids of instances are without that of the job. */
export function rowsOf(marks: readonly Mark[], id: string): Row[] {
  const statuses = marks.filter(({ kind }) => kind === "status").map((mark) => ({ ...mark, text: "", status: mark.text, earlier: [] as Mark[] }));
  const repeated = new Map<string, Row>();
  for (const mark of marks) {
    if (mark.kind === "status") continue;
    const row: Row = { ...mark, text: mark.text.replaceAll(`${id}-`, ""), status: "", earlier: [] };
    const distance = ({ time }: Mark): number => Math.abs((time ?? 0) - (mark.time ?? Infinity));
    const status = mark.kind === "event" && !APART.test(mark.text) && statuses.filter(({ text }) => !text).sort((a, b) => distance(a) - distance(b))[0];
    if (status && distance(status) < SAME_MOMENT_S) {
      status.text = row.text;
      continue;
    }
    const key = row.kind + row.text.replace(/\d+/g, "#");
    const before = repeated.get(key);
    if (before) {
      const { earlier, ...same } = before;
      row.earlier = earlier;
      earlier.push(same);
    }
    repeated.delete(key); // the last one has the place in the order
    repeated.set(key, row);
  }
  return [...statuses, ...repeated.values()].map((row, at) => ({ row, at })).sort((a, b) => (a.row.time ?? 0) - (b.row.time ?? 0) || a.at - b.at).map(({ row }) => row);
}

/** A long text as its first sentence, and the rest. */
export function sentenceOf(text: string): [string, string] {
  if (text.length < LONG) return [text, ""];
  const start = text.slice(0, SENTENCE);
  const end = start.search(/\. |。/) + 1 || start.search(/[:;] |[：；]/) + 1 || start.lastIndexOf(" ") + 1 || SENTENCE;
  return [text.slice(0, end).trim(), text.slice(end).trim()];
}
