// A hook that reads something of the service, and reads it again when it is told to.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Refusal } from "../../api.ts";

const RETRY_MS = 2000;
const BUSY = [429, 502, 503, 504];
const SOONEST_MS = 400;

export interface Answer<T> {
  value?: T | undefined;
  refusal?: Refusal | undefined;
  /** True while the service does not answer. */
  isLost?: boolean;
}

/**
 * Reads with `read` at first, when one of `keys` or `version` changes, and when the second result is called. Other
 * keys begin empty; the same ones keep what they have until the next answer is there. A lost connection is tried again.
 */
export function useAnswer<T>(read: (signal: AbortSignal) => Promise<T>, keys: readonly unknown[], version = ""): [Answer<T>, () => void] {
  const key = JSON.stringify(keys);
  const [state, setState] = useState<Answer<T> & { key: string }>({ key });
  const reader = useRef(read);
  const again = useRef(() => {});
  reader.current = read;
  useEffect(() => {
    let asking: AbortController | undefined;
    let waiting: ReturnType<typeof setTimeout> | undefined;
    let [begun, isEnded] = [0, false];
    const ask = async (): Promise<void> => {
      asking?.abort();
      const { signal } = (asking = new AbortController());
      begun = Date.now();
      try {
        setAnswer({ value: await reader.current(signal) }, signal);
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Refusal && !BUSY.includes(error.status)) return setAnswer({ refusal: error }, signal);
        setState((before) => ({ ...before, isLost: true }));
        waiting = setTimeout(() => void ask(), RETRY_MS);
      }
    };
    const setAnswer = (answer: Answer<T>, signal: AbortSignal): void => {
      if (!signal.aborted) setState({ ...answer, key });
    };
    again.current = () => {
      if (isEnded) return;
      clearTimeout(waiting);
      waiting = setTimeout(() => void ask(), Math.max(50, begun + SOONEST_MS - Date.now()));
    };
    setState({ key });
    void ask();
    return () => {
      isEnded = true;
      asking?.abort();
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
