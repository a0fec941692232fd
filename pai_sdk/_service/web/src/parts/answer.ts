// A hook that reads something of the service, and reads it again when it is told to.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Refusal } from "../api.ts";

const RETRY_MS = 2000;
const BUSY = [429, 502, 503, 504];
const SOONEST_MS = 400; // after the last time
const REST = 2; // and so many times as long as it took: a slow answer is not asked for all the time

export interface Answer<T> {
  value?: T | undefined;
  refusal?: Refusal | undefined;
  /** True while the service does not answer. */
  isLost?: boolean;
}

/**
 * Reads with `read` at first, when one of `keys` or `version` changes, and when the second result is called. Other
 * keys begin empty; the same ones keep what they have until the next answer is there. A lost connection is tried again.
 * An answer that is on its way is awaited: where changes come faster than answers, none would arrive otherwise.
 */
export function useAnswer<T>(read: (signal: AbortSignal) => Promise<T>, keys: readonly unknown[], version = ""): [Answer<T>, () => void] {
  const key = JSON.stringify(keys);
  const [state, setState] = useState<Answer<T> & { key: string }>({ key });
  const reader = useRef(read);
  const again = useRef(() => {});
  reader.current = read;
  useEffect(() => {
    const ending = new AbortController();
    let waiting: ReturnType<typeof setTimeout> | undefined;
    let [begun, tookMs, isAsking, isOutdated] = [0, 0, false, false];
    const ask = async (): Promise<void> => {
      [begun, isAsking, isOutdated] = [Date.now(), true, false];
      try {
        const value = await reader.current(ending.signal);
        if (!ending.signal.aborted) setState({ value, key });
      } catch (error) {
        if (ending.signal.aborted) return;
        if (error instanceof Refusal && !BUSY.includes(error.status)) setState({ refusal: error, key });
        else {
          setState((before) => ({ ...before, isLost: true }));
          waiting = setTimeout(() => void ask(), RETRY_MS);
        }
      } finally {
        isAsking = false;
      }
      tookMs = Date.now() - begun;
      if (isOutdated) again.current();
    };
    again.current = () => {
      isOutdated = true;
      if (isAsking || ending.signal.aborted) return;
      clearTimeout(waiting);
      waiting = setTimeout(() => void ask(), Math.max(50, begun + Math.max(SOONEST_MS, REST * tookMs) - Date.now()));
    };
    setState({ key });
    void ask();
    return () => {
      ending.abort();
      clearTimeout(waiting);
    };
  }, [key]);
  const known = useRef(version);
  useEffect(() => {
    if (known.current !== version) again.current();
    known.current = version;
  }, [version]);
  return [state.key === key ? state : {}, useCallback(() => again.current(), [])];
}
