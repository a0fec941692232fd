// The answers of the service for the charts on the screen: asked one request after the other, again when runs change.
//
//   question (runs, x axis, zoom, smoothing) + metrics on the screen --> requests of a few metrics --> a signal each
//
// A new question is asked at once; for new points of runs, the service is asked four times a second, or less often if
// its answers take long. Charts keep what they have until the new answer is there.
import { signal, type Signal } from "@preact/signals";
import { askColumns, Refusal } from "../api.ts";
import type { Curve } from "../parts/curve_data.ts";
import { readAnswers, type Answer, type Names, type Question } from "./compared.ts";

export interface State {
  answer?: Answer;
  error: string;
  isWaiting: boolean; // for the answer to what is asked now
}

interface Entry {
  state: Signal<State>;
  key: string; // of the question that was answered
  version: number; // of the runs
}

const MOST_TAGS = 6;
const CURVES_A_REQUEST = 1000;
const PAUSE_MS = 250;
const REST = 2; // times as long as the last answer took
const KEPT = 60; // answers
const BUSY_STATUS = 503;
const RETRY_MS = 2000;

export class Answers {
  /** The largest x that is known, of answers that have the newest points. */
  readonly latest = signal<number | undefined>(undefined);
  /** The least one, of answers that have the first points. */
  readonly earliest = signal<number | undefined>(undefined);
  /** The groups of the answers, each with its runs; none if runs are not grouped. */
  readonly groups = signal<readonly Curve[]>([]);
  private readonly entries = new Map<string, Entry>();
  private readonly wanted = new Set<string>();
  private question: Question | undefined;
  private width = 0; // follow the newest points in a window of this width; 0 for not
  private key = "";
  private version = 1;
  private asking: AbortController | undefined;
  private waiting: ReturnType<typeof setTimeout> | undefined;
  private askedAt = 0;
  private tookMs = 0;
  private mostTags = MOST_TAGS;
  private isEnded = false;

  constructor(private readonly names: Names) {}

  of(tag: string): Signal<State> {
    return this.entry(tag).state;
  }

  /** Whether the chart of a metric is on the screen. */
  show(tag: string, isShown: boolean): void {
    if (isShown) this.wanted.add(tag);
    else this.wanted.delete(tag);
    this.later(0);
  }

  ask(question: Question, width: number): void {
    const key = JSON.stringify([question, width, width > 0 && this.latest.peek() === undefined]);
    if (key === this.key) return;
    if (this.question?.x !== question.x) this.latest.value = this.earliest.value = undefined;
    if (String(this.question?.group_by) !== String(question.group_by)) this.groups.value = [];
    this.key = key;
    this.question = question;
    this.width = width;
    this.mostTags = MOST_TAGS;
    this.asking?.abort();
    this.asking = undefined;
    for (const tag of this.wanted) this.change(tag, { isWaiting: true });
    this.later(0);
  }

  /** Runs have changed. */
  renew(): void {
    this.version++;
    this.later(0);
  }

  end(): void {
    this.isEnded = true;
    clearTimeout(this.waiting);
    this.asking?.abort();
  }

  private later(pause: number): void {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => void this.next(), pause);
  }

  private async next(): Promise<void> {
    const { question, key, version } = this;
    if (this.isEnded || this.asking || !question) return;
    const due = [...this.wanted].filter((tag) => this.entry(tag).key !== key || this.entry(tag).version !== version);
    const fresh = due.filter((tag) => this.entry(tag).key !== key);
    if (due.length === 0) return;
    const pause = this.askedAt + Math.max(PAUSE_MS, REST * this.tookMs) - Date.now();
    if (fresh.length === 0 && pause > 0) return this.later(pause);
    const most = Math.max(1, Math.min(this.mostTags, Math.floor(CURVES_A_REQUEST / Math.max(1, question.runs.length))));
    const tags = (fresh.length > 0 ? fresh : due).slice(0, most);
    if (fresh.length <= tags.length) this.askedAt = Date.now();
    const begun = Date.now();
    const { signal: ending } = (this.asking = new AbortController());
    let pauseAfter = 0;
    try {
      const found = readAnswers(await askColumns("compare", { body: { ...this.body(question), tags }, signal: ending }), this.names);
      if (ending.aborted) return;
      this.tookMs = Date.now() - begun;
      this.note(found, this.body(question));
      for (const answer of found) this.change(answer.tag, { answer, error: "", isWaiting: false }, key, version);
    } catch (error) {
      if (ending.aborted) return;
      if (!(error instanceof Refusal) || error.status === BUSY_STATUS) pauseAfter = RETRY_MS;
      else if (tags.length > 1) this.mostTags = 1; // one of them may be too large
      else for (const tag of tags) this.change(tag, { error: error.message, isWaiting: false }, key, version);
    }
    this.asking = undefined;
    this.later(pauseAfter);
  }

  /** What the service is asked, with the place of a window that follows the newest points. */
  body(question: Question): Question {
    const latest = this.latest.peek();
    return this.width > 0 && latest !== undefined ? { ...question, from: latest - this.width } : question;
  }

  private note(found: readonly Answer[], { from, to }: Question): void {
    let [least, largest] = [this.earliest.peek() ?? Infinity, this.latest.peek() ?? -Infinity];
    for (const { curves } of found) {
      for (const { x } of curves) {
        if (from === undefined && x.length > 0) least = Math.min(least, x[0] as number);
        if (to === undefined && x.length > 0) largest = Math.max(largest, x[x.length - 1] as number);
      }
    }
    const known = new Map(this.groups.peek().map((curve) => [curve.name, curve]));
    for (const { curves } of found) {
      for (const curve of curves) if (curve.runs && (known.get(curve.name)?.runs?.length ?? -1) < curve.runs.length) known.set(curve.name, curve);
    }
    this.groups.value = [...known.values()];
    if (least < Infinity) this.earliest.value = least;
    if (largest > -Infinity) this.latest.value = largest;
  }

  private entry(tag: string): Entry {
    let entry = this.entries.get(tag);
    if (!entry) this.entries.set(tag, (entry = { state: signal({ error: "", isWaiting: true }), key: "", version: 0 }));
    return entry;
  }

  private change(tag: string, state: Partial<State>, key?: string, version?: number): void {
    const entry = this.entry(tag);
    entry.state.value = { ...entry.state.peek(), ...state };
    if (key === undefined || version === undefined) return;
    entry.key = key;
    entry.version = version;
    this.entries.delete(tag); // the newest answers stand last
    this.entries.set(tag, entry);
    for (const [old, { state: kept }] of this.entries) {
      if (this.entries.size <= KEPT) break;
      if (!this.wanted.has(old)) {
        this.entries.delete(old);
        kept.value = { error: "", isWaiting: true };
      }
    }
  }
}
