// What happened to a run: statuses, events, checkpoints, the first values that are not finite.
import { ask } from "../../api.ts";
import { useAnswer } from "../../parts/answer.ts";
import type { JobDetail, Mark, RunDetail } from "./wire.ts";

const NONE: Mark[] = [];
const EMPTY = Promise.resolve({ events: NONE }); // of a run that is not in the list yet

export function useMarks(run: RunDetail, job: JobDetail | null): Mark[] {
  const [marks] = useAnswer((signal) => (run.v ? ask<{ events: Mark[] }>("marks", { run: run.id, signal }) : EMPTY), [run.id], `${run.v} ${job?.status}`);
  return marks.value?.events ?? NONE;
}

/** The metrics to be shown first: losses and what is evaluated, then the others in their order. */
export function mainTags(run: RunDetail, most: number): string[] {
  const tags = run.tags.filter(({ kind }) => kind === "scalar").map(({ tag }) => tag);
  const rank = (tag: string): number => (/loss/i.test(tag) ? 0 : /acc|eval|val|reward|score|f1|auc|bleu|perplexity/i.test(tag) ? 1 : 2);
  return tags.map((tag, at) => ({ tag, at })).sort((a, b) => rank(a.tag) - rank(b.tag) || a.at - b.at).slice(0, most).map(({ tag }) => tag);
}
