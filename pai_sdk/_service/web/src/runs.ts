// The runs that the page is about: those of the filter, or the ones that were picked out of them.
//
//   address `q` (filter), `sort`, `only` (picked ids) --> list of runs --> views
//
// The list is fetched again when the service says that runs have changed, at most twice a second.
import { batch, computed, effect, signal } from "@preact/signals";
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
  owner?: string;
  started_at?: number;
  instance_type?: string;
  instance_count?: number;
  cause?: string; // of a failure, in one line
  cost?: number; // so far
  currency?: string;
  sub_status?: string; // why it waits
  waits_for?: string; // comes with the place
  star?: boolean;
  tags?: string[];
  note?: string;
  archived?: boolean;
  media?: string[]; // kinds and tags of what is no number: `image:samples`
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
  all: number; // without the filter
  statuses: Record<string, number>; // counts, whichever of them the filter names
  next: string | null;
  version: string;
  loading: boolean;
  error: string;
}

const RUNS_AT_ONCE = 1000;
const FIRST_RUNS = 100; // more than a screen has: the list is there before all of it was sent
const PAINT_MS = 50; // the rest is asked for after the first rows were drawn
const MOST_RUNS = 10_000; // that the service sends
const PAUSE_MS = 500;
const FIELDS =
  "status,name,created_at,started_at,updated_at,ended_at,labels,hparams,damaged,is_loading,error,last,min,max,nan,queue_place,owner,instance_type,instance_count,cause,sub_status,cost,currency,star,tags,note,archived";

export const filter = field("q");
export const sort = field("sort", "-created");
export const picked = computed(() => (address.value.only ? address.value.only.split(",").map(decodeURIComponent) : []));

/** The list; undefined until it was read. */
export const list = signal<RunList | undefined>(undefined);
/** Why the list could not be read, such as a filter with an error; empty if it could. */
export const listError = signal("");
/** The filter and the order that the list is of; others while the next one is being read. */
export const listOf = signal("");
/** Whether the list has only its first rows, and the others follow at once. */
export const isPart = signal(false);
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

const limit = signal(RUNS_AT_ONCE);

/** Whether more runs of a long list can be asked for. */
export const hasMore = computed(() => !isPart.value && (list.value?.next ?? null) !== null && limit.value < MOST_RUNS);

/** Makes the list longer. */
export function readMore(): void {
  limit.value = Math.min(MOST_RUNS, limit.value + RUNS_AT_ONCE);
}

/** Whether the list has the media of the runs, which only one view needs. */
export const asksMedia = signal(false);

/** What the list is asked for now, as one text. */
export function question(): string {
  return JSON.stringify([filter.value, sort.value, asksMedia.value]);
}

let asking: AbortController | undefined;
let asked = "";
let isOutdated = false; // runs have changed since the list was asked for
let waiting: ReturnType<typeof setTimeout> | undefined;
let askedAt = 0;

export function readList(): void {
  clearTimeout(waiting);
  waiting = setTimeout(() => void read(), Math.max(0, askedAt + PAUSE_MS - Date.now()));
}

async function read(): Promise<void> {
  const most = list.value || address.value.view ? limit.value : FIRST_RUNS;
  const key = JSON.stringify([question(), most]);
  if (asking && asked === key) {
    isOutdated = true; // on a slow network a list that is aborted for each change would never arrive
    return;
  }
  asking?.abort();
  const ending = (asking = new AbortController());
  [asked, askedAt, isOutdated] = [key, Date.now(), false];
  const of = question();
  try {
    const query = { filter: filter.value, sort: sort.value, limit: most, fields: asksMedia.value ? `${FIELDS},media` : FIELDS };
    const found = await ask<RunList>("runs", { query, signal: ending.signal });
    batch(() => {
      if (!isSame(found, list.value) || of !== listOf.value) list.value = found;
      listOf.value = of;
      listError.value = found.error ?? "";
      isPart.value = most < limit.value && found.next !== null;
    });
    if (isPart.value) setTimeout(() => void read(), PAINT_MS);
    if (found.loading) isOutdated = true;
  } catch (error) {
    if (ending.signal.aborted) return;
    if (error instanceof Refusal) listError.value = error.message;
    else setTimeout(readList, 2 * PAUSE_MS);
  } finally {
    if (asking === ending) {
      asking = undefined;
      if (isOutdated) readList();
    }
  }
}

// Nothing is drawn again for a list that has not changed.
function isSame(found: RunList, before: RunList | undefined): boolean {
  return found.version === before?.version && found.runs.length === before.runs.length && found.loading === before.loading;
}

let hasBegun = false;

/** Reads the list now, when the filter or the order changes, and when runs change. */
export function beginList(): void {
  if (hasBegun) return;
  hasBegun = true;
  effect(() => {
    void [question(), limit.value];
    readList();
  });
  follow("runs", () => readList());
}
