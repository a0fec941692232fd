// Jobs that are watched in this browser: it tells when one ends, or when a rule has a finding.
//
//   the tab that reads the stream, at each change ─┐
//   any tab, each 30 s (there is no stream while all are hidden) ─┴─> GET …/job ──> under a lock: told once, for all tabs
//
// What is watched, and what was told and is not read yet, is kept in the browser for each user. A notification needs
// the permission of the user; what was told is always in the title and in the head, too.
import { effect, signal } from "@preact/signals";
import { address, go } from "./address.ts";
import { ask, Refusal } from "./api.ts";
import { about } from "./place.ts";
import { statusText } from "./service_texts.ts";
import { follow, readsStream } from "./stream.ts";
import { chinese, t } from "./words.ts";

interface Told {
  id: string;
  text: string;
}

interface State {
  watched: Record<string, { name: string; since: number }>; // since when findings are new
  told: Told[];
}

interface JobState {
  status: string;
  ended_at: number | null;
  rules?: { code: string; findings: { message: string; since: number; is_open: boolean }[] }[];
}

const POLL_MS = 30_000;
const PAUSE_MS = 1000;
const SIGNS: Record<string, string> = { Succeed: "✔", Failed: "✕" };

/** The title of what is shown, without what was told. */
export const title = signal("pai");
export const state = signal<State>({ watched: {}, told: [] });

/** Watches jobs, or no longer; asks for the permission to notify, so it is called by a click only. */
export function watch(jobs: readonly { id: string; name: string }[], isOn: boolean): void {
  if (isOn && "Notification" in window && Notification.permission === "default") void Notification.requestPermission();
  const watched = { ...read().watched };
  for (const { id, name } of jobs) {
    if (isOn) watched[id] = { name, since: Date.now() / 1000 };
    else delete watched[id];
  }
  write({ ...read(), watched });
  if (isOn) for (const { id } of jobs) soon(id);
}

export function dismiss(id: string): void {
  const { watched, told } = read();
  if (told.some((each) => each.id === id)) write({ watched, told: told.filter((each) => each.id !== id) });
}

export function beginTold(): void {
  state.value = read();
  addEventListener("storage", ({ key: changed }) => changed === key() && (state.value = read()));
  const seen = (): void => {
    if (!document.hidden && address.value.run) dismiss(address.value.run);
  };
  document.addEventListener("visibilitychange", seen);
  effect(() => {
    const [first] = state.value.told;
    document.title = first ? `${first.text} · pai` : title.value;
    seen();
  });
  follow("runs", ({ event, data }) => {
    if (!readsStream()) return;
    for (const id of Object.keys(state.value.watched)) {
      if (event === "resync" || data.changed?.includes(id) || data.removed?.includes(id)) soon(id);
    }
  });
  setInterval(poll, POLL_MS);
  poll();
}

function poll(): void {
  const last = `${key()} polled`;
  if (Date.now() - Number(localStorage.getItem(last)) < POLL_MS * 0.8) return; // another tab has done it
  const ids = Object.keys(read().watched);
  if (ids.length === 0) return;
  localStorage.setItem(last, String(Date.now()));
  ids.forEach(soon);
}

const due = new Set<string>();
let waiting: ReturnType<typeof setTimeout> | undefined;

function soon(id: string): void {
  due.add(id);
  waiting ??= setTimeout(() => void checkAll(), PAUSE_MS);
}

/** One after the other: hundreds may be watched, and a browser has six connections. */
async function checkAll(): Promise<void> {
  for (const id of [...due]) {
    due.delete(id); // what changes from now on is checked again
    await check(id);
  }
  waiting = due.size > 0 ? setTimeout(() => void checkAll(), PAUSE_MS) : undefined;
}

async function check(id: string): Promise<void> {
  const known = read().watched[id];
  if (!known) return;
  try {
    const job = await ask<JobState>("job", { run: id });
    const findings = (job.rules ?? []).flatMap(({ code, findings }) => findings.map((finding) => ({ code, ...finding })));
    const found = findings.find(({ is_open, since }) => is_open && since > known.since);
    if (job.ended_at !== null) await once(id, `${SIGNS[job.status] ?? "■"} ${t("{name} ended: {status}", { name: known.name, status: statusText(job.status) })}`);
    else if (found) await once(id, `⚠ ${known.name}: ${found.code}`, found.message, found.since);
  } catch (error) {
    if (error instanceof Refusal && error.status === 404) watch([{ id, name: "" }], false); // it was deleted
  }
}

/** Tells, unless another tab has: only one of them removes the job from what is watched, or moves its time. */
async function once(id: string, text: string, body = "", since?: number): Promise<void> {
  const tell = (): void => {
    const { watched, told } = read();
    const entry = watched[id];
    if (!entry || (since !== undefined && entry.since >= since)) return;
    const { [id]: _, ...others } = watched;
    write({ watched: since === undefined ? others : { ...others, [id]: { ...entry, since } }, told: [{ id, text }, ...told.filter((each) => each.id !== id)] });
    notify(id, text, body);
  };
  if (navigator.locks) await navigator.locks.request("pai-ui-told", tell);
  else tell();
}

function notify(id: string, text: string, body: string): void {
  if (!("Notification" in window) || Notification.permission !== "granted") return;
  try {
    const shown = new Notification(text, { body, tag: id });
    shown.onclick = () => {
      window.focus();
      go({ run: id });
      shown.close();
    };
  } catch {
    // Browsers of phones allow this to service workers only: the title and the head tell.
  }
}

function key(): string {
  return `pai-ui-told ${about.value?.place} ${about.value?.user ?? ""}`;
}

function read(): State {
  try {
    return { watched: {}, told: [], ...(JSON.parse(localStorage.getItem(key()) ?? "{}") as Partial<State>) };
  } catch {
    return { watched: {}, told: [] };
  }
}

function write(next: State): void {
  localStorage.setItem(key(), JSON.stringify(next));
  state.value = next;
}

chinese({
  "{name} ended: {status}": "{name} 已结束：{status}",
});
