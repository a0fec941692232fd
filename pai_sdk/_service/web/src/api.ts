// Requests to the service. `ROUTES` is compared with the service's own description of its API by a test.
import { signal } from "@preact/signals";
import { readColumns, type Columns } from "./columns.ts";
import { refusalText } from "./service_texts.ts";
import { forget, isWorthAgain, keep, proofFor } from "./session_key.ts";

const RUNS = "/api/v1/runs";
const ONE = `${RUNS}/{run_id}`;
const LIST = ["filter", "sort", "fields", "tags", "limit", "cursor"] as const;

export const ROUTES = {
  about: { method: "GET", path: "/ui/about", query: [] },
  session: { method: "POST", path: "/ui/session", query: [] },
  signOut: { method: "DELETE", path: "/ui/session", query: [] },
  administration: { method: "GET", path: "/api/v1/administration", query: [] },
  disk: { method: "GET", path: "/api/v1/administration/disk", query: [] },
  audit: { method: "GET", path: "/api/v1/audit", query: ["User", "Action", "Before", "PageSize"] },
  pipelines: { method: "GET", path: "/ui/pipelines", query: [] },
  pipeline: { method: "GET", path: "/ui/pipelines/{run_id}", query: [] },
  runs: { method: "GET", path: RUNS, query: LIST },
  run: { method: "GET", path: ONE, query: ["v"] },
  tags: { method: "GET", path: `${ONE}/tags`, query: ["v"] },
  marks: { method: "GET", path: `${ONE}/events`, query: [] },
  scalars: { method: "GET", path: `${ONE}/scalars`, query: ["tag", "x", "from", "to", "buckets", "smooth", "after", "v"] },
  log: { method: "GET", path: `${ONE}/log`, query: ["line", "lines", "tail", "time", "after", "after_instance", "instance"] },
  search: { method: "GET", path: `${ONE}/log/search`, query: ["q", "regex", "ignore_case", "instance", "after", "shown", "time_limit"] },
  logLines: { method: "GET", path: `${ONE}/log/lines`, query: ["q", "regex", "ignore_case", "level", "context", "line", "lines", "tail", "instance"] },
  media: { method: "GET", path: `${ONE}/media`, query: ["kind", "tag"] },
  image: { method: "GET", path: `${ONE}/media/image`, query: ["tag", "index"] },
  job: { method: "GET", path: `${ONE}/job`, query: [] },
  usage: { method: "GET", path: `${ONE}/usage`, query: [] },
  files: { method: "GET", path: `${ONE}/files`, query: ["path"] },
  preview: { method: "GET", path: `${ONE}/files/preview`, query: ["path"] },
  download: { method: "POST", path: `${ONE}/downloads`, query: [] },
  trace: { method: "GET", path: `${ONE}/trace`, query: ["table", "offset", "limit"] },
  diff: { method: "GET", path: `${ONE}/diff`, query: ["with"] },
  rerunForm: { method: "GET", path: `${ONE}/rerun`, query: [] },
  rerun: { method: "POST", path: `${ONE}/rerun`, query: [] },
  stop: { method: "POST", path: `${ONE}/stop`, query: [] },
  remove: { method: "DELETE", path: ONE, query: [] },
  annotate: { method: "PATCH", path: `${ONE}/annotations`, query: [] },
  views: { method: "GET", path: "/api/v1/views", query: [] },
  saveView: { method: "PUT", path: "/api/v1/views/{name}", query: [] },
  deleteView: { method: "DELETE", path: "/api/v1/views/{name}", query: [] },
  compare: { method: "POST", path: "/api/v1/compare", query: [] },
  hparams: { method: "POST", path: "/api/v1/hparams/diff", query: [] },
  queue: { method: "GET", path: "/api/v1/queue", query: [] },
  schedules: { method: "GET", path: "/api/v1/schedules", query: ["PageSize"] },
  pauseSchedule: { method: "POST", path: "/api/v1/schedules/{schedule_id}/pause", query: [] },
  resumeSchedule: { method: "POST", path: "/api/v1/schedules/{schedule_id}/resume", query: [] },
  events: { method: "GET", path: "/api/v1/events", query: ["topics"] },
} as const;

type Routes = typeof ROUTES;
type Route = keyof Routes;

export interface Options<R extends Route> {
  run?: string; // or the name of a view
  query?: Partial<Record<Routes[R]["query"][number], string | number | boolean | undefined>>;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
}

/** What the service refused, with its own words. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

/** Whether this browser is signed in; undefined until the first response. */
export const isSignedIn = signal<boolean | undefined>(undefined);

/** Why it is not, if the service says more than that. */
export const refused = signal("");

/** What to type for a new link, as the service says when it refuses. */
export const linkCommand = signal("pai-sdk ui");

/** An answer as JSON. Raises `Refusal`; a network that fails raises what `fetch` does. */
export async function ask<T, R extends Route = Route>(route: R, options: Options<R> = {}): Promise<T> {
  return (await (await send(route, options)).json()) as T;
}

/** An answer as columns of numbers. */
export async function askColumns<R extends Route>(route: R, options: Options<R> = {}): Promise<Columns> {
  const answer = await send(route, { ...options, headers: { Accept: "application/vnd.pai.columns" } });
  return readColumns(await answer.arrayBuffer());
}

/** An answer as it comes: for streams, images and files. */
export async function send<R extends Route>(route: R, options: Options<R> = {}): Promise<Response> {
  const { method, path } = ROUTES[route];
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(options.query ?? {})) if (value !== undefined) query.set(name, String(value));
  const address = path.replace(/\{\w+\}/, encodedPath(options.run ?? "")) + (query.size > 0 ? `?${query}` : "");
  const body = method === "GET" ? null : JSON.stringify(options.body ?? {});
  const tried = async (): Promise<Response> => {
    const headers: Record<string, string> = { "X-PAI-UI": route === "session" ? "none" : await proofFor(method, address), ...options.headers };
    if (body !== null) headers["Content-Type"] = "application/json";
    return fetch(address, { method, headers, body, signal: options.signal ?? null, credentials: "same-origin" });
  };
  let answer = await tried();
  if (answer.status === 401 && (await isWorthAgain(answer.headers.get("Date")))) answer = await tried();
  if (answer.ok) {
    if (route !== "session") isSignedIn.value = true;
    return answer;
  }
  const said = (await answer.json().catch(() => ({}))) as { Code?: string; Message?: string; Command?: string };
  if (said.Command) linkCommand.value = said.Command;
  const refusal = new Refusal(answer.status, said.Code ?? "", refusalText(said.Code ?? "", said.Message ?? `HTTP ${answer.status}`));
  if (refusal.code.startsWith("InvalidAccessKeyId")) refused.value = refusal.message;
  if (answer.status === 401) isSignedIn.value = false;
  throw refusal;
}

/** Exchanges the code of a link for the cookie and the key of this page. */
export async function signIn(code: string): Promise<void> {
  const { key } = await ask<{ key: string }>("session", { body: { code } });
  keep(key);
}

/** Signs this browser out, in all of its tabs, also while the service does not answer. */
export async function signOut(): Promise<void> {
  await ask("signOut").catch(() => undefined);
  await forget();
  location.reload();
}

// The id of a run of a folder has slashes.
function encodedPath(id: string): string {
  return id.split("/").map(encodeURIComponent).join("/");
}
