// The log of a run: a million lines by number, followed while it grows, searched, linked to by line.
//
//   feed (lines by number) --> rows on the screen <-- top (the line at the top, with its fraction)
//
// Only the lines on the screen are elements. What changes sixty times a second is in one object, which is drawn at
// most once a frame.
import { useEffect, useLayoutEffect, useReducer, useRef, useState } from "preact/hooks";
import { address, change, field, linkTo } from "../address.ts";
import { ask } from "../api.ts";
import { count, moment } from "../format.ts";
import { copyText, Notice } from "../parts/basics.tsx";
import { wordsOf } from "../parts/dialog.tsx";
import { plainText } from "../parts/sgr.ts";
import { boxHeight, isShortened, mostTop, readRange, scrolledTo, topOf, writeRange, type Sizes } from "../parts/virtual_lines.ts";
import { ENDED } from "../statuses.ts";
import { follow, lostSince, topicPart } from "../stream.ts";
import { chinese, t } from "../words.ts";
import { download } from "./job/download.ts";
import { LogFeed, type Line, type LineFilter, type Start } from "./log/feed.ts";
import { placesOf, statesOf, type Range } from "./log/line_text.ts";
import { OpenLine } from "./log/open_line.tsx";
import { Row } from "./log/row.tsx";
import { LogSearch, rangeIn } from "./log/search.ts";
import { SearchBar } from "./log/search_bar.tsx";
import { drawStrip } from "./log/strip.ts";
import "./log.css";

interface LogMark {
  time: number;
  text: string;
}
interface Props {
  run: string;
  /** Goes to the line of this time, in seconds since 1970. */
  time?: number | undefined;
  /** Called with the line under the pointer, and with undefined when there is none any more. */
  onLine?: ((line: Line | undefined) => void) | undefined;
  /** Shown at the first visible line that was written after them. */
  marks?: readonly LogMark[] | undefined;
  /** The status of the job: says why there is no log. */
  status?: string | undefined;
}
export type { Line };

const TAIL = 300;
const STORED = "pai-ui-log";
const LATER_MS = 1500; // lines between the first answer and the begin of the stream
const WAITING_MS = 30_000;
const STILL_MS = 150;
const COPIED_LINES = 10_000;

export type Times = "none" | "relative" | "absolute";
const chosen = field("line");
const instanceName = field("instance");
const levelName = field("level");
const found = field("find");
const how = field("how");
const around = field("context");
const UNFILTERED = { level: "", find: "", how: "", context: "" };
const LEVELS = ["error", "warning", "info", "debug"];
const AROUND = ["0", "1", "2", "5", "10"];

/** What is drawn: the place in the log, and what is being done with it. */
class Place {
  top = 0;
  isFollowing = false;
  followedTotal = 0; // lines there were when following ended
  scrolled = 0; // where the browser was scrolled to, as far as that is known
  isTouched = false;
  started: number | null | undefined; // time of the first line
  search: LogSearch | undefined;
  hit = -1;
  hitLine = -1;
  anchor = -1; // of a selection
}

export function Log({ run, time, onLine, marks, status }: Props) {
  const [, draw] = useReducer<number, void>((number) => number + 1, 0);
  const frame = useRef(0);
  const scheduled = useRef(() => {
    frame.current ||= requestAnimationFrame(() => {
      frame.current = 0;
      draw();
    });
  }).current;
  const scroller = useRef<HTMLDivElement>(null);
  const strip = useRef<HTMLCanvasElement>(null);
  const finder = useRef<HTMLInputElement>(null);
  const goingTo = useRef<HTMLInputElement>(null);
  const still = useRef<ReturnType<typeof setTimeout>>(undefined);
  const place = useRef(new Place()).current;
  const [feed, setFeed] = useState<LogFeed>();
  const [box, setBox] = useState({ height: 400, line: 18 });
  const [options, setOptions] = useState(readOptions);
  const [open, setOpen] = useState<Line>();
  const [notice, setNotice] = useState("");
  const instance = instanceName.value;
  const filter = filterOf();
  const filterKey = JSON.stringify(filter);
  const range = readRange(chosen.value);
  const sizes: Sizes = { total: feed?.total ?? 0, ...box };
  const mine = feed?.run === run ? feed : undefined; // of another instance or filter until the next one is there
  const isShown = mine?.state === "ready" && (mine.total > 0 || !!mine.filter);
  const current = useRef({ feed, sizes });
  current.current = { feed, sizes };

  useFeed();
  useLayoutEffect(measure, [isShown]);
  useEffect(() => () => place.search?.stop(), []);
  useEffect(() => {
    if (time !== undefined && isShown && !filter) void goTo({ time }).then((number) => number !== undefined && (place.hitLine = number));
  }, [time, isShown]);
  useLayoutEffect(() => {
    if (range && isShown && !filter && place.anchor !== range[0] && place.anchor !== range[1]) void goTo({ line: range[0] });
  }, [chosen.value, isShown]);
  useEffect(() => {
    const element = scroller.current;
    const onWheel = (event: WheelEvent): void => {
      if (event.ctrlKey || event.shiftKey || !isShortened(current.current.sizes) || Math.abs(event.deltaX) > Math.abs(event.deltaY)) return;
      event.preventDefault();
      moveBy(event.deltaMode === 1 ? event.deltaY : event.deltaMode === 2 ? event.deltaY * pageOf() : event.deltaY / current.current.sizes.line);
    };
    element?.addEventListener("wheel", onWheel, { passive: false });
    return () => element?.removeEventListener("wheel", onWheel);
  }, [isShown]);

  if (place.isFollowing) place.top = mostTop(sizes);
  place.top = Math.min(place.top, mostTop(sizes));
  const first = Math.floor(place.top);
  const last = Math.min(sizes.total, Math.ceil(place.top + box.height / box.line) + 1);
  useLayoutEffect(() => {
    if (!feed || !isShown) return;
    feed.wanted(first, last);
    loadHits(first, last);
    syncBar();
    if (strip.current) drawStrip(strip.current, place.search, sizes.total, feed.instances.length > 1 && !instance, place.hitLine);
  });

  if (!mine || mine.state === "loading") return <p class="soft" aria-live="polite">{t("Reading the log…")}</p>;
  if (mine.state === "failed") return <Notice kind="bad">{mine.problem}</Notice>;
  if (mine.state === "none" && instance) {
    return <Notice kind="bad">{mine.problem} <a href={linkTo({ ...address.value, instance: "" })}>{t("All instances")}</a></Notice>;
  }
  if (mine.state === "none") return <Notice>{t("This run has no log. A log is shown where the run's folder has logs/NAME.log.")}</Notice>;
  if (!isShown) return <Empty hasEnded={mine.isComplete || ENDED.has(status ?? "")} />;
  const isOpen = !mine.isComplete;
  const unseen = Math.max(0, sizes.total - place.followedTotal);
  const isAtEnd = place.top >= mostTop(sizes) - 0.5;

  return (
    <section class="log" aria-label={t("Log")}>
      <div class="log-tools" role="toolbar" aria-label={t("Log")}>
        <SearchBar input={finder} search={place.search} number={place.hit} begin={begin} next={(step) => void toHit(step)} close={closeSearch} only={filter?.q ? { text: filter.q, isRegex: !!filter.regex, ignoresCase: !!filter.ignore_case } : undefined} />
        {(place.search || filter) && (
          <select aria-label={t("Lines shown")} value={filter ? String(filter.context) : ""} onChange={(event) => showAround(event.currentTarget.value)}>
            <option value="">{t("All lines")}</option>
            {[...new Set([...AROUND, ...(filter ? [String(filter.context)] : [])])].map((n) => <option key={n} value={n}>{n === "0" ? t("Only matches") : `± ${n}`}</option>)}
          </select>
        )}
        <select aria-label={t("Level")} value={levelName.value} onChange={(event) => change({ level: event.currentTarget.value })}>
          <option value="">{t("All levels")}</option>
          {LEVELS.map((level, at) => <option key={level} value={level}>{at > 0 && "≥ "}{level.toUpperCase()}</option>)}
        </select>
        <label class="log-go">
          <span class="hidden-text">{t("Go to line")}</span>
          <input ref={goingTo} inputMode="numeric" placeholder={t("Line")} size={8} onKeyDown={onGo} />
        </label>
        {mine.instances.length > 1 || instance ? (
          <select aria-label={t("Instance")} value={instance} onChange={(event) => change({ instance: event.currentTarget.value, line: "" })}>
            <option value="">{t("All instances")}</option>
            {[...new Set([...mine.instances, ...(instance ? [instance] : [])])].map((name) => <option key={name} value={name}>{name}</option>)}
          </select>
        ) : null}
        <select aria-label={t("Times")} value={options.times} onChange={(event) => set({ times: event.currentTarget.value as Times })}>
          <option value="none">{t("No times")}</option>
          <option value="relative">{t("Since the first line")}</option>
          <option value="absolute">{t("Date and time")}</option>
        </select>
        <button aria-pressed={options.wraps} onClick={() => set({ wraps: !options.wraps })}>{t("Wrap")}</button>
        {isOpen && <button aria-pressed={place.isFollowing} onClick={() => setFollowing(!place.isFollowing)} title="f">{t("Follow")}</button>}
        <button onClick={() => void saveLog(false)}>{t("Download")}</button>
        <button class="log-gz" aria-label={`${t("Download")} .gz`} onClick={() => void saveLog(true)}>.gz</button>
      </div>
      {range && (
        <p class="log-chosen">
          <span>{range[0] === range[1] ? t("Line {n}", { n: count(range[0] + 1) }) : t("Lines {n} to {m}", { n: count(range[0] + 1), m: count(range[1] + 1) })}</span>
          <button class="plain" onClick={() => void copyText(location.href).then(() => say(t("Copied")))}>{t("Copy link")}</button>
          <button class="plain" onClick={() => void copyLines(range)}>{t("Copy text")}</button>
          <button class="plain" onClick={() => (place.anchor = -1, change({ line: "" }, { replace: true }))}>{t("Clear")}</button>
        </p>
      )}
      <p class="hidden-text" role="status">{notice}</p>
      <div class={`log-body ${options.wraps ? "wraps" : ""}`}>
        <div
          ref={scroller}
          class="log-lines"
          tabIndex={0}
          role="log"
          aria-live="off"
          aria-label={t("Lines {n} to {m} of {total}", { n: first + 1, m: last, total: sizes.total })}
          onScroll={onScroll}
          onKeyDown={onKey}
          onTouchStart={() => (place.isTouched = true)}
          onTouchEnd={() => ((place.isTouched = false), scheduled())}
          onTouchCancel={() => ((place.isTouched = false), scheduled())}
          onMouseLeave={() => onLine?.(undefined)}
        >
          <div class="log-space" style={{ height: `${boxHeight(sizes)}px` }}>
            <div class={`log-rows ${options.wraps && isAtEnd && first > 0 ? "at-end" : ""}`} style={{ height: `${Math.min(box.height, boxHeight(sizes))}px` }}>
              <div style={{ transform: options.wraps ? "" : `translateY(${-(place.top - first) * box.line}px)` }}>
                {rows(mine)}
              </div>
            </div>
          </div>
        </div>
        <canvas ref={strip} class="log-strip" aria-hidden="true" hidden={!place.search} onClick={onStrip} />
        {isOpen && !place.isFollowing && (
          <button class="log-new main" onClick={() => setFollowing(true)}>{unseen > 0 ? t("new lines ↓ {n}", { n: count(unseen) }) : t("to the end ↓")}</button>
        )}
      </div>
      <p class="log-foot soft">
        {t("{n} {n|line|lines}", { n: count(sizes.total) })}
        {mine.trouble && (mine.trouble === "time" ? " …" : ` (${t("incomplete")}: ${mine.trouble})`)}
        {isOpen && lostSince.value ? <span class="bad"> · {t("The service does not answer; new lines come when it is back.")}</span> : null}
        {notice && <span aria-hidden="true"> · {notice}</span>}
        <span class="log-keys">{t("/ search, n N next, g line, f follow")}</span>
      </p>
      {open && <OpenLine text={open.text} number={open.number} close={() => setOpen(undefined)} />}
    </section>
  );

  function rows(from: LogFeed) {
    const shown = [];
    const isMerged = from.instances.length > 1 && !instance;
    const digits = Math.max(3, String(sizes.total).length);
    for (let at = first; at < last; at++) {
      const line = from.line(at);
      const before = from.line(at - 1);
      const number = line?.number ?? at;
      const href = linkTo({ ...address.value, ...UNFILTERED, line: String(number + 1) });
      const mark = line?.time && before?.time ? marks?.findLast((one) => before.time! < one.time && one.time <= line.time!) : undefined;
      shown.push(
        <Row
          key={at}
          number={number}
          line={line}
          digits={digits}
          hits={line && hitsOf(line)}
          isChosen={!!range && range[0] <= number && number <= range[1]}
          isHit={number === place.hitLine}
          isGap={!!from.filter && !!line && !!before && before.number + 1 < number}
          instance={isMerged ? Math.max(0, from.instances.indexOf(line?.instance ?? "")) : -1}
          time={timeOf(line)}
          mark={mark?.text ?? ""}
          href={href}
          choose={from.filter ? () => change({ ...UNFILTERED, line: String(number + 1) }) : choose}
          open={setOpen}
          point={onLine}
        />,
      );
    }
    return shown;
  }

  // Reads the log from where it is to be shown, and follows it. Depends on the run, the instance and the filter only.
  function useFeed(): void {
    useEffect(() => {
      let ended = false;
      let unfollow: (() => void) | undefined;
      const clocks: ReturnType<typeof setTimeout>[] = [];
      let reading: LogFeed;
      const begin = async (): Promise<void> => {
        reading?.close();
        const wasReset = unfollow !== undefined;
        reading = new LogFeed(run, instance, scheduled, filter);
        const asked = filter ? undefined : readRange(chosen.value);
        const start: Start = asked && !wasReset ? { line: Math.max(0, asked[0] - 100) } : { tail: TAIL };
        const found = await reading.read(start);
        if (ended) return;
        if (found === undefined) {
          if (reading.state !== "loading") setFeed(reading);
          clocks.push(setTimeout(() => void begin(), reading.state === "none" ? WAITING_MS : LATER_MS)); // it may get a log
          return;
        }
        setFeed(reading);
        place.isFollowing = !asked && (time === undefined || !!filter);
        place.top = asked ? Math.max(0, asked[0] - 5) : reading.total;
        place.followedTotal = reading.total;
        scheduled();
        unfollow ??= follow(`log:${topicPart(run)}${instance ? `:${topicPart(instance)}` : ""}`, (message) => {
          if (!reading.take(message)) void begin();
        });
        clocks.push(setTimeout(() => void catchUp(), LATER_MS));
      };
      const catchUp = async (): Promise<void> => {
        if (reading.state === "ready" && !reading.isComplete) await reading.read({ tail: TAIL });
      };
      const unlost = lostSince.subscribe((since) => void (since === 0 && reading && catchUp()));
      void begin();
      return () => {
        ended = true;
        reading.close();
        unfollow?.();
        unlost();
        clocks.forEach(clearTimeout);
        cancelAnimationFrame(frame.current);
        frame.current = 0;
        place.search?.stop();
        Object.assign(place, new Place());
      };
    }, [run, instance, filterKey]);
  }

  function measure(): (() => void) | undefined {
    const element = scroller.current;
    if (!element) return undefined;
    const sized = (): void => {
      const line = parseFloat(getComputedStyle(element).lineHeight) || 18;
      setBox((before) => (before.height === element.clientHeight && before.line === line ? before : { height: element.clientHeight, line }));
    };
    const observer = new ResizeObserver(sized);
    observer.observe(element);
    sized();
    return () => observer.disconnect();
  }

  function pageOf(): number {
    return Math.max(1, Math.floor(current.current.sizes.height / current.current.sizes.line) - 1);
  }

  function moveBy(lines: number): void {
    moveTo(place.top + lines);
  }

  /** Shows a line at the top. To reach the end is to follow the log; to go up is to stop that. */
  function moveTo(top: number): void {
    const { sizes: now } = current.current;
    const most = mostTop(now);
    const isDown = top > place.top;
    place.top = Math.min(most, Math.max(0, top));
    const follows = place.top >= most - 0.01 && (isDown || place.isFollowing);
    if (place.isFollowing && !follows) place.followedTotal = now.total;
    place.isFollowing = follows;
    scheduled();
  }

  function setFollowing(on: boolean): void {
    place.isFollowing = on;
    place.followedTotal = sizes.total;
    scheduled();
    scroller.current?.focus();
  }

  function onScroll(): void {
    const element = scroller.current as HTMLDivElement;
    const moved = element.scrollTop - place.scrolled;
    if (Math.abs(moved) < 1) return;
    place.scrolled = element.scrollTop;
    const isAtEdge = element.scrollTop <= 0 || element.scrollTop >= boxHeight(sizes) - box.height - 1;
    if (isShortened(sizes) && Math.abs(moved) < 3 * box.height && !isAtEdge) moveBy(moved / box.line); // a finger
    else moveTo(topOf(element.scrollTop, sizes));
  }

  // Puts the scroll bar where the lines are, unless a finger moves it just now.
  function syncBar(): void {
    const element = scroller.current;
    if (!element || place.isTouched) return;
    const wanted = scrolledTo(place.top, sizes);
    const sync = (): void => {
      if (Math.abs(element.scrollTop - wanted) < 1) return;
      element.scrollTop = wanted;
      place.scrolled = element.scrollTop;
    };
    clearTimeout(still.current);
    // A finger's swing goes on after it was lifted; setting the place of the bar would end it.
    if (isShortened(sizes) && matchMedia("(pointer: coarse)").matches) still.current = setTimeout(sync, STILL_MS);
    else sync();
  }

  async function goTo(start: Start): Promise<number | undefined> {
    const from = current.current.feed;
    if (!from) return undefined;
    const number = "line" in start ? start.line : await from.read(start); // a line is fetched when it is drawn
    if (number === undefined) return undefined;
    place.isFollowing = false;
    place.followedTotal = from.total;
    if (scroller.current) scroller.current.scrollLeft = 0;
    current.current.sizes = { ...current.current.sizes, total: from.total };
    place.top = Math.min(mostTop(current.current.sizes), Math.max(0, number - Math.floor(pageOf() / 3)));
    scheduled();
    return number;
  }

  function choose(number: number, extends_: boolean): void {
    if (!extends_ || place.anchor < 0) place.anchor = number;
    const ends: [number, number] = [Math.min(place.anchor, number), Math.max(place.anchor, number)];
    change({ line: writeRange(ends) }, { replace: true });
    if (!extends_) onLine?.(feed?.line(number));
  }

  function onKey(event: KeyboardEvent): void {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const keys: Record<string, () => void> = {
      ArrowDown: () => moveBy(1),
      ArrowUp: () => moveBy(-1),
      PageDown: () => moveBy(pageOf()),
      PageUp: () => moveBy(-pageOf()),
      " ": () => moveBy(event.shiftKey ? -pageOf() : pageOf()),
      Home: () => moveTo(0),
      End: () => moveTo(Infinity),
      g: () => goingTo.current?.focus(),
      "/": () => finder.current?.focus(),
      n: () => void toHit(1),
      N: () => void toHit(-1),
      f: () => isLive() && setFollowing(!place.isFollowing),
      Enter: () => range && setOpen(feed?.line(range[0])),
    };
    if (event.shiftKey && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      const [begin, end] = range ?? [-1, -1];
      const far = (place.anchor === end ? begin : end) + (event.key === "ArrowDown" ? 1 : -1);
      choose(range ? Math.min(sizes.total - 1, Math.max(0, far)) : Math.ceil(place.top), !!range);
    } else if (keys[event.key]) keys[event.key]?.();
    else return;
    event.preventDefault();
  }

  function isLive(): boolean {
    return !!feed && !feed.isComplete;
  }

  function onGo(event: KeyboardEvent): void {
    const input = event.currentTarget as HTMLInputElement;
    if (event.key === "Escape") return scroller.current?.focus();
    const wanted = readRange(input.value.replace(/[,\s]/g, ""));
    if (event.key !== "Enter" || !wanted) return;
    const [begin, end] = wanted.map((number) => Math.min(number, sizes.total - 1)) as [number, number];
    place.anchor = begin;
    change({ line: writeRange([begin, end]) }, { replace: true });
    void goTo({ line: begin });
    input.value = "";
    scroller.current?.focus();
  }

  function begin(text: string, isRegex: boolean, ignoresCase: boolean): void {
    if (filter) return change({ find: text, how: howOf(isRegex, ignoresCase), line: "" });
    closeSearch();
    if (!text) return;
    const search = (place.search = new LogSearch(run, instance, { text, isRegex, ignoresCase }, () => {
      if (place.search !== search) return;
      if (place.hit < 0 && search.isDone && search.count > 0) void toHit(0);
      scheduled();
    }));
    void search.begin();
    scheduled();
  }

  /** Shows only hits with some lines before and after each; an empty text shows all lines, and searches them. */
  function showAround(lines: string): void {
    const { search } = place;
    if (lines) return change({ context: lines, line: "", ...(search && { find: search.query.text, how: howOf(search.query.isRegex, search.query.ignoresCase) }) });
    change(UNFILTERED);
  }

  function closeSearch(): void {
    if (filter?.q) change({ find: "", how: "", context: "" });
    place.search?.stop();
    place.search = undefined;
    place.hit = place.hitLine = -1;
    scheduled();
  }

  /** Goes to the next hit (1), the one before (-1), or the nearest to what is shown (0). */
  async function toHit(step: number): Promise<void> {
    const search = place.search;
    if (!search || search.count === 0) return;
    let number = place.hit + step;
    if (place.hit < 0) {
      const line = feed?.line(Math.floor(place.top)) ?? feed?.line(Math.ceil(place.top));
      number = line?.instance && line.offset !== undefined ? await search.numberFrom(line.instance, line.offset) : 0;
    }
    number = (number + search.count) % search.count;
    place.hit = number;
    const hit = await search.hit(number);
    if (!hit || place.search !== search || place.hit !== number) return;
    const isMerged = (feed?.instances.length ?? 0) > 1 && !instance;
    const found = await goTo(isMerged ? { after: hit.offset, after_instance: hit.instance } : { line: hit.line });
    if (found !== undefined) place.hitLine = found;
    scheduled();
  }

  function hitsOf(line: Line): readonly Range[] {
    const search = place.search;
    if (filter?.q && !filter.regex) return placesOf(line.text, filter.q, !!filter.ignore_case);
    if (!search) return [];
    if (!search.query.isRegex) {
      const places = search.places.get(line) ?? placesOf(line.text, search.query.text, search.query.ignoresCase);
      search.places.set(line, places);
      return places;
    }
    if (!line.instance || line.offset === undefined) return [];
    const hits = search.stretchAt(line.instance, line.offset)?.hits ?? [];
    return hits.filter(({ offset }) => offset === line.offset).map((hit) => rangeIn(line.text, hit));
  }

  // Hits of a regular expression are found by the service only.
  function loadHits(from: number, to: number): void {
    const search = place.search;
    if (!search?.query.isRegex || !search.isDone) return;
    for (const number of [from, to - 1]) {
      const line = feed?.line(number);
      const stretch = line?.instance && line.offset !== undefined ? search.stretchAt(line.instance, line.offset) : undefined;
      if (stretch && !stretch.hits && stretch.count > 0) void search.load(stretch);
    }
  }

  function onStrip(event: MouseEvent): void {
    const element = event.currentTarget as HTMLElement;
    moveTo((event.offsetY / element.clientHeight) * sizes.total - pageOf() / 2);
  }

  function timeOf(line: Line | undefined): string | undefined {
    if (options.times === "none") return undefined;
    if (!line?.time) return "";
    if (options.times === "absolute") return moment(line.time);
    if (place.started === undefined) {
      place.started = null;
      void ask<{ lines: Line[] }>("log", { run, query: { line: 0, lines: 1, instance: instance || undefined } })
        .then(({ lines }) => ((place.started = lines[0]?.time ?? null), scheduled()))
        .catch(() => undefined);
    }
    return place.started === null || place.started === undefined ? "" : clock(line.time - place.started);
  }

  function set(changed: Partial<Options>): void {
    const now = { ...options, ...changed };
    setOptions(now);
    localStorage.setItem(STORED, JSON.stringify(now));
  }

  function say(text: string): void {
    setNotice(text);
    setTimeout(() => setNotice(""), 3000);
  }

  async function copyLines([begin, end]: readonly [number, number]): Promise<void> {
    const texts: string[] = [];
    while (feed && begin + texts.length <= end && texts.length < COPIED_LINES) {
      const query = { line: begin + texts.length, lines: Math.min(COPIED_LINES, end - begin + 1) - texts.length, instance: instance || undefined };
      const { lines } = await ask<{ lines: Line[] }>("log", { run, query });
      if (lines.length === 0) break;
      texts.push(...lines.map(({ text }) => plainText(statesOf(text).at(-1) ?? "")));
    }
    await copyText(texts.join("\n"));
    say(t("Copied {n} {n|line|lines}", { n: count(texts.length) }));
  }

  async function saveLog(gzip: boolean): Promise<void> {
    try {
      await download(run, { kind: "log", gzip, ...(instance && { instance }) });
      say(t("Downloading…"));
    } catch (error) {
      say(wordsOf(error));
    }
  }
}

/** The filter of the address; undefined if all lines are shown. */
function filterOf(): LineFilter | undefined {
  const level = LEVELS.includes(levelName.value) ? levelName.value : "";
  if (!level && !found.value) return undefined;
  const marks = how.value.split(",");
  return {
    ...(found.value && { q: found.value, regex: marks.includes("regex"), ignore_case: !marks.includes("case") }),
    ...(level && { level }),
    context: Math.min(100, Math.max(0, Math.floor(Number(around.value)) || 0)),
  };
}

function howOf(isRegex: boolean, ignoresCase: boolean): string {
  return [isRegex && "regex", !ignoresCase && "case"].filter(Boolean).join(",");
}

interface Options {
  times: Times;
  wraps: boolean;
}

function readOptions(): Options {
  try {
    return { times: "none", wraps: false, ...JSON.parse(localStorage.getItem(STORED) ?? "{}") };
  } catch {
    return { times: "none", wraps: false };
  }
}

function Empty({ hasEnded }: { hasEnded: boolean }) {
  if (hasEnded) return <Notice>{t("There is no log: the job wrote nothing, or its log was deleted.")}</Notice>;
  return <Notice>{t("No output yet.")} {t("Lines appear here when the job writes its first one.")}</Notice>;
}

/** A length of time as `1:02:03.4`. */
function clock(seconds: number): string {
  const size = Math.abs(seconds);
  const [hours, minutes] = [Math.floor(size / 3600), Math.floor((size % 3600) / 60)];
  return `${seconds < 0 ? "−" : ""}${hours}:${String(minutes).padStart(2, "0")}:${(size % 60).toFixed(1).padStart(4, "0")}`;
}

chinese({
  "Reading the log…": "正在读取日志…",
  "Log": "日志",
  "Go to line": "转到行",
  "Line": "行号",
  "Instance": "实例",
  "All instances": "全部实例",
  "Times": "时间",
  "No times": "不显示时间",
  "Since the first line": "距首行的时间",
  "Date and time": "日期与时间",
  "Wrap": "换行",
  "Follow": "跟随",
  "Download": "下载",
  "Line {n}": "第 {n} 行",
  "Lines {n} to {m}": "第 {n} 至 {m} 行",
  "Lines {n} to {m} of {total}": "第 {n} 至 {m} 行，共 {total} 行",
  "Copy link": "复制链接",
  "Copy text": "复制文本",
  "Clear": "清除",
  "Copied": "已复制",
  "Copied {n} {n|line|lines}": "已复制 {n} 行",
  "new lines ↓ {n}": "新行 ↓ {n}",
  "to the end ↓": "到末尾 ↓",
  "{n} {n|line|lines}": "{n} 行",
  "No output yet.": "尚无输出。",
  "The service does not answer; new lines come when it is back.": "服务无响应；恢复后会显示新行。",
  "/ search, n N next, g line, f follow": "/ 搜索，n N 下一处，g 转到行，f 跟随",
  "Downloading…": "正在下载…",
  "Lines shown": "显示的行",
  "All lines": "全部行",
  "Only matches": "仅匹配行",
  "Level": "级别",
  "All levels": "全部级别",
  "This run has no log. A log is shown where the run's folder has logs/NAME.log.": "此运行没有日志。运行文件夹中有 logs/名称.log 时才会显示。",
  "There is no log: the job wrote nothing, or its log was deleted.": "没有日志：作业没有输出，或日志已被删除。",
  "Lines appear here when the job writes its first one.": "作业写出第一行后会显示在这里。",
});
