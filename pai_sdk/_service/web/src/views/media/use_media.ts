// Images, histograms and texts of runs, as the service gives them; read again while a run grows.
import { useEffect, useRef, useState } from "preact/hooks";
import { ask, Refusal } from "../../api.ts";
import { readChoice, type Item, type RunMedia, type RunPart } from "./media_data.ts";

const PAUSE_MS = 5000; // a run that reports has a new version all the time
const AT_ONCE = 3; // of the six requests that a browser sends to one place

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
    const { items } = await ask<{ items?: Item[] }>("media", { run: run.id, query, signal });
    return { id: run.id, media: { items: items ?? [], v: run.v, chosen, error: "" } };
  } catch (error) {
    if (!(error instanceof Refusal)) return undefined;
    return { id: run.id, media: { items: [], v: run.v, chosen, error: error.message } };
  }
}
