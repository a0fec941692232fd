// A search in a log. The service counts all hits, a piece of the log after the other; the hits of a piece are fetched
// when they are needed: to go to one, or to mark those on the screen.
import { Refusal, send } from "../../api.ts";
import { placeOf, type Range } from "./line_text.ts";

interface Query {
  text: string;
  isRegex: boolean;
  ignoresCase: boolean;
}
export interface Hit {
  instance: string;
  line: number; // within the instance
  offset: number; // of the line, in bytes
  range: Range; // in the line, or in the part of it, in the browser's characters
  part: string; // of a long line, around the hit; empty if the range is one of the whole line
}
interface Stretch {
  instance: string;
  firstLine: number;
  lastLine: number;
  begin: number; // in bytes of the instance's log
  before: number; // hits of the stretches before it
  count: number;
  hits?: Hit[];
}

const SHOWN = 2000; // with their lines, while hits are counted
const MOST_OF_A_STRETCH = 10_000;
const BEFORE_HIT = 200; // bytes of a line that come with a hit before it

export class LogSearch {
  readonly stretches: Stretch[] = [];
  /** Places in lines that were on the screen. */
  readonly places = new WeakMap<object, readonly Range[]>();
  count = 0;
  isDone = false;
  trouble = "";
  readonly #ending = new AbortController();
  readonly #loading = new Map<Stretch, Promise<void>>();

  constructor(
    readonly run: string,
    readonly instance: string,
    readonly query: Query,
    private readonly onChange: () => void,
  ) {}

  async begin(): Promise<void> {
    let [name, base, searched] = ["", 0, 0];
    let hits: Hit[] = [];
    const onObject = (said: any): boolean => {
      if (said.kind === "hit") hits.push(readHit(said));
      else if (said.kind === "progress") {
        if (said.instance !== name) [name, base] = [said.instance, searched];
        const stretch: Stretch = { instance: name, firstLine: said.first_line, lastLine: said.last_line, begin: searched - base, before: this.count, count: said.hits };
        if (hits.length === said.hits) stretch.hits = hits;
        [hits, searched] = [[], said.searched_bytes];
        this.stretches.push(stretch);
        this.count += said.hits;
      } else this.trouble = said.trouble;
      return true;
    };
    try {
      await this.#read({ instance: this.instance || undefined, shown: SHOWN }, this.#ending.signal, onObject, () => this.onChange());
    } catch (error) {
      if (this.#ending.signal.aborted) return;
      this.trouble = error instanceof Error ? error.message : String(error);
      if (!(error instanceof Refusal)) this.trouble = "The service did not answer.";
    }
    this.isDone = true;
    this.onChange();
  }

  /** Ends it, with what was found until now. */
  stop(): void {
    this.#ending.abort();
    if (!this.isDone) this.trouble = "stopped";
    this.isDone = true;
  }

  /** The hit with a number, from 0. */
  async hit(number: number): Promise<Hit | undefined> {
    const stretch = this.stretches.find(({ before, count }) => before <= number && number < before + count);
    if (!stretch) return undefined;
    await this.load(stretch);
    const hits = stretch.hits ?? [];
    return hits[Math.min(number - stretch.before, hits.length - 1)];
  }

  /** The number of the first hit in a line or after it; that of the last hit if all are before. */
  async numberFrom(instance: string, offset: number): Promise<number> {
    const at = this.stretchAt(instance, offset);
    if (at) {
      await this.load(at);
      const found = at.hits?.findIndex((hit) => hit.offset >= offset) ?? -1;
      if (found >= 0) return at.before + found;
      if (at.before + at.count < this.count) return at.before + at.count;
    }
    return this.count - 1;
  }

  /** The stretch that has a byte of an instance's log. */
  stretchAt(instance: string, offset: number): Stretch | undefined {
    return this.stretches.findLast((stretch) => stretch.instance === instance && stretch.begin <= offset);
  }

  /** Fetches the hits of a stretch. */
  load(stretch: Stretch): Promise<void> {
    if (stretch.hits) return Promise.resolve();
    let loading = this.#loading.get(stretch);
    if (!loading) this.#loading.set(stretch, (loading = this.#load(stretch).finally(() => this.#loading.delete(stretch))));
    return loading;
  }

  async #load(stretch: Stretch): Promise<void> {
    const enough = new AbortController();
    const hits: Hit[] = [];
    const onObject = (said: any): boolean => {
      if (said.kind === "hit" && said.line < stretch.lastLine) hits.push(readHit(said));
      return !(said.kind === "progress" && said.last_line >= stretch.lastLine);
    };
    const query = { instance: stretch.instance, after: stretch.begin, shown: Math.min(stretch.count, MOST_OF_A_STRETCH) };
    await this.#read(query, enough.signal, onObject, () => undefined).catch(() => undefined);
    enough.abort();
    stretch.hits = hits;
    for (const other of this.stretches.filter((one) => one.hits && one !== stretch).slice(0, -20)) delete other.hits;
    this.onChange();
  }

  async #read(
    range: { instance: string | undefined; after?: number; shown: number },
    signal: AbortSignal,
    onObject: (said: any) => boolean,
    onPart: () => void,
  ): Promise<void> {
    const { text, isRegex, ignoresCase } = this.query;
    const query = { q: text, regex: isRegex, ignore_case: ignoresCase, ...range };
    const answer = await send("search", { run: this.run, query, signal });
    const reader = (answer.body as ReadableStream<Uint8Array>).getReader();
    const decoder = new TextDecoder();
    for (let rest = ""; ; ) {
      const { done, value } = await reader.read();
      const lines = (rest + decoder.decode(value, { stream: !done })).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) if (line && !onObject(JSON.parse(line))) return;
      onPart();
      if (done) return;
    }
  }
}

/** Where a hit is in its line. */
export function rangeIn(line: string, { range, part }: Hit): Range {
  const begin = part ? Math.max(0, line.indexOf(part)) : 0;
  return [begin + range[0], begin + range[1]];
}

function readHit({ instance, line, offset, start, end, text }: any): Hit {
  const range: Range = [placeOf(text, start), placeOf(text, end)];
  const isPart = new TextEncoder().encode(text.slice(0, range[0])).length >= BEFORE_HIT;
  return { instance, line, offset, range, part: isPart ? text : "" };
}
