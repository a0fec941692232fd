// The one event stream of this browser: what changes in the service, for all its tabs.
//
//   tab (visible) --asks for the lock--> leader: reads the stream, gives each message to all tabs
//   leader hidden, closed, killed --> the lock is free --> the next visible tab leads, from the cursor it has seen
//
// A browser opens six connections to a service at most, so a stream for each tab would block the others' requests.
// Every tab tells the leader its topics; the leader reads the union of them. A tab notes the cursor of each message,
// so whoever leads next continues behind it: nothing is lost and nothing comes twice. While all tabs are hidden there
// is no stream; the first one that is shown again continues from its cursor. Pages by plain HTTP of another machine
// have no locks: there, each visible tab reads a stream of its own.
import { signal } from "@preact/signals";
import { isSignedIn, Refusal, send } from "./api.ts";

export interface Message {
  event: string;
  topic: string;
  data: any;
}

type Handler = (message: Message) => void;
interface Note {
  kind: "topics" | "who" | "bye" | "message" | "state";
  tab: string;
  topics?: string[];
  id?: string;
  message?: Message;
  lost?: number;
}

const RETRY_MS = 1000;
const FORGET_MS = 30_000;
const TELL_MS = 10_000;
const QUIET_MS = 40_000; // the service sends a comment every 15 s

/** Since when the service has not answered, in milliseconds since 1970; 0 while it does. */
export const lostSince = signal(0);

const tab = Math.random().toString(36).slice(2);
const handlers = new Map<string, Set<Handler>>();
const others = new Map<string, { topics: string[]; at: number }>();
let channel: BroadcastChannel | undefined;
let cursor = "";
let leading: AbortController | undefined; // ends the leadership
let isReader = false;
let reading: AbortController | undefined; // ends one connection

/** Calls `handler` with the messages of a topic (`runs`, `scalars:RUN:TAG`, `log:RUN`) until the result is called. */
export function follow(topic: string, handler: Handler): () => void {
  const known = handlers.get(topic);
  if (known) known.add(handler);
  else handlers.set(topic, new Set([handler]));
  if (!known) topicsChanged();
  return () => {
    const left = handlers.get(topic);
    left?.delete(handler);
    if (left?.size === 0) {
      handlers.delete(topic);
      topicsChanged();
    }
  };
}

/** A part of a topic's name. */
export function topicPart(text: string): string {
  return encodeURIComponent(text);
}

/** Whether this tab reads the stream, and the others get its messages. */
export function readsStream(): boolean {
  return isReader;
}

export function beginStream(): void {
  channel = new BroadcastChannel("pai-ui");
  channel.onmessage = ({ data }: MessageEvent<Note>) => noted(data);
  document.addEventListener("visibilitychange", () => (document.hidden ? rest() : lead()));
  window.addEventListener("pagehide", () => {
    tell({ kind: "bye", tab });
    rest();
  });
  window.addEventListener("pageshow", () => !document.hidden && lead());
  window.addEventListener("online", () => reading?.abort());
  setInterval(() => tell({ kind: "topics", tab, topics: [...handlers.keys()] }), TELL_MS);
  if (!document.hidden) lead();
}

function noted(note: Note): void {
  if (note.kind === "topics") {
    const before = others.get(note.tab)?.topics.join();
    others.set(note.tab, { topics: note.topics ?? [], at: Date.now() });
    if (leading && before !== note.topics?.join()) restart();
  } else if (note.kind === "bye") others.delete(note.tab);
  else if (note.kind === "who") tell({ kind: "topics", tab, topics: [...handlers.keys()] });
  else if (note.kind === "message") received(note.message as Message, note.id ?? "");
  else if (note.kind === "state") lostSince.value = note.lost ?? 0;
}

function tell(note: Note): void {
  channel?.postMessage(note);
}

function topicsChanged(): void {
  tell({ kind: "topics", tab, topics: [...handlers.keys()] });
  if (leading) restart();
}

let restarting: ReturnType<typeof setTimeout> | undefined;
function restart(): void {
  clearTimeout(restarting);
  restarting = setTimeout(() => reading?.abort(), 50);
}

function lead(): void {
  if (leading) return;
  const ending = (leading = new AbortController());
  const work = async (): Promise<void> => {
    if (ending.signal.aborted) return;
    tell({ kind: "who", tab });
    isReader = true;
    await readUntil(ending.signal).finally(() => (isReader = false));
  };
  if (navigator.locks) navigator.locks.request("pai-ui-stream", { signal: ending.signal }, work).catch(() => undefined);
  else void work();
}

function rest(): void {
  leading?.abort();
  leading = undefined;
  reading?.abort();
}

async function readUntil(ending: AbortSignal): Promise<void> {
  while (!ending.aborted) {
    reading = new AbortController();
    const startedWith = topics();
    try {
      if (startedWith.length > 0) await readOnce(startedWith, AbortSignal.any([ending, reading.signal]));
      else await new Promise((done) => (reading as AbortController).signal.addEventListener("abort", done));
    } catch (error) {
      if (ending.aborted) return;
      if (error instanceof Refusal && error.status === 401) return;
      if (error instanceof Refusal && error.status === 404) await pause(RETRY_MS);
      if (!reading.signal.aborted) setLost(lostSince.value || Date.now());
    }
    if (!reading.signal.aborted && !ending.aborted) await pause(RETRY_MS);
  }
}

function topics(): string[] {
  const now = Date.now();
  for (const [name, { at }] of others) if (now - at > FORGET_MS) others.delete(name);
  const all = new Set(handlers.keys());
  for (const { topics: wanted } of others.values()) for (const topic of wanted) all.add(topic);
  return [...all].sort();
}

async function readOnce(wanted: string[], ending: AbortSignal): Promise<void> {
  const headers: Record<string, string> = cursor ? { "Last-Event-ID": cursor } : {};
  const answer = await send("events", { query: { topics: wanted.join(",") }, headers, signal: ending });
  const reader = (answer.body as ReadableStream<Uint8Array>).pipeThrough(new TextDecoderStream() as any).getReader() as ReadableStreamDefaultReader<string>;
  let text = "";
  for (;;) {
    const quiet = setTimeout(() => void reader.cancel(), QUIET_MS);
    const part = await reader.read().finally(() => clearTimeout(quiet));
    if (part.done) return;
    setLost(0);
    const messages = (text + part.value).split("\n\n");
    text = messages.pop() ?? "";
    for (const message of messages) readMessage(message);
  }
}

function readMessage(text: string): void {
  const fields: Record<string, string> = {};
  for (const line of text.split("\n")) {
    const at = line.indexOf(": ");
    if (at > 0) fields[line.slice(0, at)] = line.slice(at + 2);
  }
  if (!fields.event) return;
  const data = JSON.parse(fields.data ?? "{}");
  const message = { event: fields.event, topic: data.topic ?? "runs", data };
  tell({ kind: "message", tab, message, id: fields.id ?? "" });
  received(message, fields.id ?? "");
}

function received(message: Message, id: string): void {
  if (id) cursor = id;
  for (const handler of handlers.get(message.topic) ?? []) handler(message);
}

function setLost(since: number): void {
  if (since === lostSince.value) return;
  const isBack = since === 0;
  lostSince.value = since;
  tell({ kind: "state", tab, lost: since });
  if (isBack) isSignedIn.value = true;
}

function pause(milliseconds: number): Promise<void> {
  return new Promise((done) => setTimeout(done, milliseconds));
}
