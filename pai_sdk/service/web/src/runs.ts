// The runs that the page is about: those of the filter, or the ones that were picked out of them.
//
//   address `q` (filter), `sort`, `only` (picked ids) --> list of runs --> views
//
// The list is fetched again when the service says that runs have changed, at most twice a second.
import { computed, effect, signal } from "@preact/signals";
import { address, change, field } from "./address.ts";
import { ask, Refusal } from "./api.ts";
import { follow } from "./stream.ts";

export interface Run {
  id: string;
  v: string;
  name?: string;
  status?: string;
  created_at?: number;
  updated_at?: number;
  ended_at?: number;
  labels?: Record<string, string>;
  hparams?: Record<string, unknown>;
  damaged?: number;
  is_loading?: boolean;
  error?: string;
  queue_place?: number;
  last?: (number | null)[];
  min?: (number | null)[];
  max?: (number | null)[];
  step?: (number | null)[];
  count?: (number | null)[];
  nan?: (number | null)[];
  nonfinite?: Record<string, Record<string, number[]>>;
}

export interface RunList {
  runs: Run[];
  tags: string[];
  total: number;
  next: string | null;
  version: string;
  loading: boolean;
  error: string;
}

const MOST_RUNS = 1000;
const PAUSE_MS = 500;
const FIELDS = "status,name,created_at,updated_at,ended_at,labels,hparams,damaged,is_loading,error,last,min,max,nan";

export const filter = field("q");
export const sort = field("sort", "-created");
export const picked = computed(() => (address.value.only ? address.value.only.split(",").map(decodeURIComponent) : []));

/** The list; undefined until it was read. */
export const list = signal<RunList | undefined>(undefined);
/** Why the list could not be read, such as a filter with an error; empty if it could. */
export const listError = signal("");
/** When the list was read, in milliseconds since 1970. */
export const listAt = signal(0);

/** The runs that views show: all of the list, or the picked ones. */
export const shown = computed<Run[]>(() => {
  const runs = list.value?.runs ?? [];
  if (picked.value.length === 0) return runs;
  const wanted = new Set(picked.value);
  return runs.filter((run) => wanted.has(run.id));
});

/** Short distinct names of the runs of the list, by id: the job's name, with its id where another has the same. */
export const names = computed<Map<string, string>>(() => {
  const runs = list.value?.runs ?? [];
  const counts = new Map<string, number>();
  for (const run of runs) if (run.name) counts.set(run.name, (counts.get(run.name) ?? 0) + 1);
  return new Map(runs.map((run) => [run.id, run.name && counts.get(run.name) === 1 ? run.name : run.id]));
});

export function pick(ids: readonly string[]): void {
  change({ only: ids.map((id) => encodeURIComponent(id)).join(",") }, { replace: true });
}

let asking: AbortController | undefined;
let waiting: ReturnType<typeof setTimeout> | undefined;
let askedAt = 0;

export function readList(): void {
  clearTimeout(waiting);
  waiting = setTimeout(() => void read(), Math.max(0, askedAt + PAUSE_MS - Date.now()));
}

async function read(): Promise<void> {
  askedAt = Date.now();
  asking?.abort();
  const { signal: ending } = (asking = new AbortController());
  try {
    const query = { filter: filter.value, sort: sort.value, limit: MOST_RUNS, fields: FIELDS };
    list.value = await ask<RunList>("runs", { query, signal: ending });
    listError.value = list.value.error ?? "";
    listAt.value = Date.now();
    if (list.value.loading) readList();
  } catch (error) {
    if (ending.aborted) return;
    if (error instanceof Refusal) listError.value = error.message;
    else setTimeout(readList, 2 * PAUSE_MS);
  }
}

/** Reads the list now, when the filter or the order changes, and when runs change. */
export function beginList(): void {
  effect(() => {
    void [filter.value, sort.value];
    readList();
  });
  follow("runs", () => readList());
}
