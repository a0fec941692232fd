// Images, histograms and texts of runs, as the service gives them; read again while a run grows.
import { useEffect, useRef, useState } from "preact/hooks";
import { ask, Refusal } from "../../api.ts";
import type { Run } from "../../runs.ts";

export type Kind = "image" | "histogram" | "text";

export interface Item {
  index: number;
  step: number;
  wall: number;
  text?: string;
  bins?: [number, number, number][]; // left, right, count
  width?: number;
  height?: number;
}

export interface MediaTag {
  tag: string;
  kind: string;
  count: number;
}

export interface RunMedia {
  tags: MediaTag[];
  items: Item[];
  v: string; // the version of the run that this was read at
  chosen: string; // the tag that the items are of
  error: string;
}

export type Choice = { kind: Kind; tag: string };
export type RunPart = Pick<Run, "id" | "v" | "name">;

export const KINDS: readonly Kind[] = ["image", "histogram", "text"];
const PAUSE_MS = 5000; // a run that reports has a new version all the time
const AT_ONCE = 3; // of the six requests that a browser sends to one place

/** `image:train/samples` as kind and tag; undefined for anything else. */
export function readChoice(text: string): Choice | undefined {
  const at = text.indexOf(":");
  const kind = KINDS.find((one) => one === text.slice(0, at));
  return kind && at + 1 < text.length ? { kind, tag: text.slice(at + 1) } : undefined;
}

export function writeChoice({ kind, tag }: Choice): string {
  return `${kind}:${tag}`;
}

/** The tags of several runs, each once, with the number of runs that have it; by kind, then by name. */
export function mergedTags(all: Iterable<RunMedia>): (Choice & { runs: number })[] {
  const found = new Map<string, Choice & { runs: number }>();
  for (const { tags } of all) {
    for (const { tag, kind } of tags) {
      const known = KINDS.find((one) => one === kind);
      if (!known) continue;
      const key = `${known}:${tag}`;
      found.set(key, { kind: known, tag, runs: (found.get(key)?.runs ?? 0) + 1 });
    }
  }
  const place = ({ kind }: Choice): number => KINDS.indexOf(kind);
  return [...found.values()].sort((one, other) => place(one) - place(other) || one.tag.localeCompare(other.tag));
}

/** The newest item that is not after a step; the first one where all are; without a step the newest of all. */
export function itemAt(items: readonly Item[], step: number | undefined): Item | undefined {
  if (step === undefined) return items.at(-1);
  return items.findLast((item) => item.step <= step) ?? items[0];
}

/** What each run has, by id; the items are those of the chosen tag. */
export function useMedia(runs: readonly RunPart[], chosen: string): ReadonlyMap<string, RunMedia> {
  const [found, setFound] = useState<ReadonlyMap<string, RunMedia>>(new Map());
  const wanted = useRef(runs);
  wanted.current = runs;
  const ids = runs.map(({ id }) => id).join("\n");

  useEffect(() => {
    const asking = new AbortController();
    const read = new Map<string, string>(); // versions by run
    let waiting: ReturnType<typeof setTimeout> | undefined;
    const work = async (left: RunPart[]): Promise<void> => {
      for (let run = left.shift(); run && !asking.signal.aborted; run = left.shift()) {
        const answer = await mediaOf(run, chosen, asking.signal);
        if (!answer || asking.signal.aborted) continue;
        read.set(run.id, run.v);
        setFound((before) => new Map(before).set(answer.id, answer.media));
      }
    };
    const again = async (): Promise<void> => {
      const left = wanted.current.filter(({ id, v }) => read.get(id) !== v);
      await Promise.all(Array.from({ length: AT_ONCE }, () => work(left)));
      if (!asking.signal.aborted) waiting = setTimeout(() => void again(), PAUSE_MS);
    };
    void again();
    return () => {
      asking.abort();
      clearTimeout(waiting);
    };
  }, [ids, chosen]);
  const present = new Set(runs.map(({ id }) => id));
  return new Map([...found].filter(([id]) => present.has(id)));
}

// A service that does not answer is asked again with the next round.
async function mediaOf(run: RunPart, chosen: string, signal: AbortSignal): Promise<{ id: string; media: RunMedia } | undefined> {
  try {
    const query = readChoice(chosen) ?? {};
    const { tags, items } = await ask<{ tags: MediaTag[]; items?: Item[] }>("media", { run: run.id, query, signal });
    return { id: run.id, media: { tags, items: items ?? [], v: run.v, chosen, error: "" } };
  } catch (error) {
    if (!(error instanceof Refusal)) return undefined;
    return { id: run.id, media: { tags: [], items: [], v: run.v, chosen, error: error.message } };
  }
}
