// The lines of one log, by number: those on the screen are fetched, those of a running job come on the stream.
//
//   wanted(first, last) --> one request for what is missing --> kept in pages, the oldest dropped
//   stream --> put at their numbers; a gap is fetched when it comes into view
import { ask, Refusal } from "../../api.ts";
import type { Message } from "../../stream.ts";

export interface Line {
  number: number;
  text: string;
  // Lines of the stream may come without these.
  offset?: number;
  instance?: string;
  time?: number | null;
  is_match?: boolean; // of a filter; false for lines before and after one
}
/** Which lines of a log are shown; see `logLines` of the service. */
export interface LineFilter {
  q?: string;
  regex?: boolean;
  ignore_case?: boolean;
  level?: string;
  context: number;
}
interface Answer {
  first?: number; // of a filter: the number of the first line among those it leaves
  trouble?: string;
  lines: Line[];
  total: number;
  complete: boolean;
  instances: string[];
}
export type Start = { tail: number } | { line: number } | { time: number } | { after: number; after_instance?: string };

const PAGE = 500;
const MOST_PAGES = 100;
const ASKED = 240;
const BEFORE = 80; // lines before the wanted ones, fetched with them
const RETRY_MS = 1000;
const UNFINISHED = "time"; // a part of a long log was searched


export class LogFeed {
  total = 0;
  isComplete = false;
  instances: string[] = []; // of the run
  state: "loading" | "ready" | "none" | "failed" = "loading";
  problem = "";
  /** Why lines of a filter are missing. */
  trouble = "";
  #first = 0; // of the lines on the screen
  #refreshing: ReturnType<typeof setTimeout> | undefined;
  readonly #pages = new Map<number, Line[]>();
  readonly #ending = new AbortController();
  #asking: { first: number; last: number; ending: AbortController } | undefined;

  constructor(
    readonly run: string,
    readonly instance: string,
    private readonly onChange: () => void,
    readonly filter?: LineFilter,
  ) {}

  /** The line with a number, among those of the filter; undefined while it is not here. */
  line(number: number): Line | undefined {
    return this.#pages.get(Math.floor(number / PAGE))?.[number % PAGE];
  }

  /** Fetches lines, and returns the number of the first one; undefined if there is no log or it cannot be read. */
  async read(start: Start, ending = this.#ending.signal, lines = ASKED): Promise<number | undefined> {
    try {
      const query = { ...start, ...("tail" in start ? {} : { lines }), instance: this.instance || undefined };
      const options = { run: this.run, signal: AbortSignal.any([ending, this.#ending.signal]) };
      const answer = await (this.filter ? ask<Answer>("logLines", { ...options, query: { ...query, ...this.filter } }) : ask<Answer>("log", { ...options, query }));
      // Lines before a match come with it, also between those that are here.
      if (this.filter && answer.total !== this.total) this.#pages.clear();
      this.#take(answer.lines, answer.first);
      this.total = this.filter ? answer.total : Math.max(this.total, answer.total);
      this.trouble = answer.trouble ?? "";
      if (this.trouble === UNFINISHED) this.#refresh(0);
      this.isComplete = answer.complete;
      if (!this.instance) this.instances = answer.instances;
      else if (this.instances.length === 0) await this.#readInstances();
      this.state = "ready";
      this.onChange();
      return answer.first ?? answer.lines[0]?.number ?? answer.total;
    } catch (error) {
      if (ending.aborted || this.#ending.signal.aborted) return undefined;
      if (error instanceof Refusal) {
        this.state = error.status === 404 ? "none" : "failed";
        this.problem = error.message;
        this.onChange();
      }
      return undefined;
    }
  }

  /** Fetches what is missing of the lines from `first` on, before `last`, unless it is under way. */
  wanted(first: number, last: number): void {
    const end = Math.min(last, this.total);
    this.#first = first;
    this.#touch(first, end);
    let missing = first;
    while (missing < end && this.line(missing)) missing++;
    if (missing >= end) return;
    if (this.#asking && this.#asking.first <= missing && missing < this.#asking.last) return;
    this.#asking?.ending.abort();
    const from = this.line(missing - 1) ? missing : Math.max(0, missing - BEFORE);
    const asking = (this.#asking = { first: from, last: from + ASKED, ending: new AbortController() });
    void this.read({ line: from }, asking.ending.signal).then((number) => {
      const isDone = number !== undefined && this.line(missing) !== undefined;
      const finish = (): void => {
        if (this.#asking !== asking) return;
        this.#asking = undefined;
        this.onChange();
      };
      if (isDone || asking.ending.signal.aborted) finish();
      else setTimeout(finish, RETRY_MS);
    });
  }

  /** Takes a message of the stream. Returns false if the log was replaced, so that all of it is to be read again. */
  take({ event, data }: Message): boolean {
    if (event === "reset") return false;
    if (event !== "log") return true;
    if (this.filter) {
      this.#refresh(RETRY_MS);
      return true;
    }
    const only = this.instance || (this.instances.length === 1 ? this.instances[0] : undefined);
    const lines = (data.lines as string[]).map((text, at): Line => {
      const [instance, time] = [data.instances?.[at] ?? only, data.times?.[at]];
      return { number: data.first + at, text, ...(instance && { instance }), ...(time !== undefined && { time }) };
    });
    this.#take(lines.filter(({ number }) => !this.line(number)));
    this.total = Math.max(this.total, data.first + lines.length);
    this.isComplete = data.complete;
    this.onChange();
    return true;
  }

  /** Reads what was written since; at once for all messages of a moment. */
  #refresh(wait: number): void {
    this.#refreshing ??= setTimeout(() => {
      this.#refreshing = undefined;
      void this.read({ line: Math.max(0, this.#first - BEFORE) });
    }, wait);
  }

  close(): void {
    clearTimeout(this.#refreshing);
    this.#ending.abort();
  }

  async #readInstances(): Promise<void> {
    const signal = this.#ending.signal;
    this.instances = (await ask<Answer>("log", { run: this.run, query: { tail: 1 }, signal })).instances;
  }

  #take(lines: readonly Line[], first?: number): void {
    lines.forEach((line, at) => {
      const place = first === undefined ? line.number : first + at;
      const number = Math.floor(place / PAGE);
      let page = this.#pages.get(number);
      if (!page) this.#pages.set(number, (page = []));
      page[place % PAGE] = line;
    });
    for (const number of this.#pages.keys()) {
      if (this.#pages.size <= MOST_PAGES) break;
      this.#pages.delete(number);
    }
  }

  #touch(first: number, end: number): void {
    for (let number = Math.floor(first / PAGE); number * PAGE < end; number++) {
      const page = this.#pages.get(number);
      if (page && this.#pages.delete(number)) this.#pages.set(number, page);
    }
  }
}
