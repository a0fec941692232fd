// Images, histograms and texts of the runs that are shown, side by side: `#view=media&media=image:samples&step=400`.
//
// One tag at a time. The slider moves all runs to the same step; without a step each shows its newest.
import { useEffect, useMemo, useState } from "preact/hooks";
import { change, field, linkTo } from "../address.ts";
import { colourOf } from "../colours.ts";
import { count } from "../format.ts";
import { Copyable, Notice } from "../parts/basics.tsx";
import { about } from "../place.ts";
import { asksMedia, listOf, names, question, shown } from "../runs.ts";
import { chinese, t } from "../words.ts";
import { FilterBox } from "./list/filter_box.tsx";
import { Histogram } from "./media/histogram.tsx";
import { rangeOf, type Range } from "./media/heat.ts";
import { itemAt, KINDS, mergedTags, readChoice, writeChoice, type Choice, type Item, type Kind, type RunMedia, type RunPart } from "./media/media_data.ts";
import { Picture } from "./media/picture.tsx";
import { useMedia } from "./media/use_media.ts";
import "./media.css";

const MOST_RUNS = 20;
const FOLDED_LETTERS = 800;
const mediaField = field("media");
const stepField = field("step");

const how = (isService: boolean): string => `${isService ? "import os\n\n" : ""}from torch.utils.tensorboard import SummaryWriter

writer = SummaryWriter(${isService ? 'os.environ["PAI_OUTPUT_TENSORBOARD"]' : '"runs/first"'})
writer.add_image("samples", image, step)
writer.add_histogram("weights", weights, step)
writer.add_text("notes", "the first try", step)`;

/** Of the runs of the filter. */
export function Media() {
  useEffect(() => void (asksMedia.value = true), []);
  const [isRead, setRead] = useState(false);
  if (!isRead && asksMedia.value && listOf.value === question()) setRead(true);
  return (
    <main class="media">
      <div class="tools"><h1>{t("Media")}</h1><FilterBox /></div>
      {isRead && shown.value.length === 0 && <Notice>{t("No {run} matches this filter.")}</Notice>}
      {!isRead && <p class="soft" aria-live="polite">{t("Loading …")}</p>}
      {isRead && shown.value.length > 0 && <MediaOf runs={shown.value} />}
    </main>
  );
}

/** Of some runs; also for one run on its own page. */
export function MediaOf({ runs }: { runs: readonly RunPart[] }) {
  const tags = mergedTags(runs);
  const choice = readChoice(mediaField.value) ?? tags[0];
  const chosen = choice ? writeChoice(choice) : "";
  const having = runs.filter(({ media }) => media?.includes(chosen));
  const asked = having.slice(0, MOST_RUNS);
  const found = useMedia(asked, chosen);
  const cards = asked.flatMap((run) => {
    const media = found.get(run.id);
    return media?.chosen === chosen ? [{ run, media }] : [];
  });
  const isLoading = cards.length < asked.length;
  const lacking = runs.length - having.length;
  const step = stepField.value === "" || Number.isNaN(Number(stepField.value)) ? undefined : Number(stepField.value);
  const range = useMemo(
    () => (choice?.kind === "histogram" ? rangeOf(cards.flatMap(({ media }) => media.items)) : undefined),
    [found, chosen],
  );
  if (!choice) return <Nothing />;
  return (
    <>
      {having.length > asked.length && (
        <Notice>{t("The first {n} of {total} {runs}; a filter or a selection in the list narrows them.", { n: asked.length, total: count(having.length) })}</Notice>
      )}
      <div class="tools">
        <TagChoice tags={tags} choice={choice} chosen={chosen} />
        <StepChoice cards={cards} step={step} />
        {isLoading && <span class="soft" aria-live="polite">{t("Loading …")}</span>}
      </div>
      <div class={`media-grid ${choice.kind}`}>
        {cards.map(({ run, media }) => (
          <Card key={run.id} run={run} media={media} choice={choice} step={step} range={range} isAlone={runs.length === 1} />
        ))}
      </div>
      {!isLoading && lacking > 0 && <p class="soft">{t("{n} of these {runs} {n|has|have} nothing under this name.", { n: lacking })}</p>}
    </>
  );
}

function TagChoice({ tags, choice, chosen }: { tags: Choice[]; choice: Choice; chosen: string }) {
  const kinds: Record<Kind, string> = { image: t("Images"), histogram: t("Histograms"), text: t("Texts") };
  const isKnown = tags.some((tag) => writeChoice(tag) === chosen);
  return (
    <label>
      {t("What")}{" "}
      <select value={chosen} onChange={(event) => change({ media: event.currentTarget.value }, { replace: true })}>
        {!isKnown && <option value={chosen}>{choice.tag}</option>}
        {KINDS.map((kind) => {
          const some = tags.filter((tag) => tag.kind === kind);
          if (some.length === 0) return null;
          return (
            <optgroup key={kind} label={kinds[kind]}>
              {some.map((tag) => <option key={tag.tag} value={writeChoice(tag)}>{tag.tag}</option>)}
            </optgroup>
          );
        })}
      </select>
    </label>
  );
}

/** A slider over the steps at which any of the runs has something. */
function StepChoice({ cards, step }: { cards: readonly { media: RunMedia }[]; step: number | undefined }) {
  const steps = [...new Set(cards.flatMap(({ media }) => media.items.map((item) => item.step)))].sort((one, other) => one - other);
  if (steps.length < 2) return null;
  const last = steps.length - 1;
  const at = step === undefined ? last : Math.max(0, steps.findLastIndex((one) => one <= step));
  const move = (place: number): void => change({ step: String(steps[place]) }, { replace: true });
  return (
    <>
      <label class="step-choice">
        {t("Step")}{" "}
        <input
          type="range"
          min={0}
          max={last}
          value={at}
          aria-valuetext={String(steps[at])}
          onInput={(event) => move(Number(event.currentTarget.value))}
        />
        <output>{steps[at]}</output>
      </label>
      <button aria-pressed={step === undefined} onClick={() => change({ step: step === undefined ? String(steps[at]) : "" }, { replace: true })}>
        {t("Follow the newest")}
      </button>
    </>
  );
}

interface CardProps {
  run: RunPart;
  media: RunMedia;
  choice: Choice;
  step: number | undefined;
  range: Range | undefined;
  isAlone: boolean;
}

function Card({ run, media, choice, step, range, isAlone }: CardProps) {
  const name = names.value.get(run.id) ?? run.name ?? run.id;
  const item = itemAt(media.items, step);
  return (
    <article class="media-card">
      <header>
        {!isAlone && <i class="media-dot" style={{ background: colourOf(run.id) }} />}
        {!isAlone && <a href={linkTo({ run: run.id })}>{name}</a>}
        {item && <span class="soft">{t("step {n}", { n: item.step })}</span>}
      </header>
      {media.error && <p class="bad">{media.error}</p>}
      {choice.kind === "image" && media.items.length > 0 && <Picture run={run.id} name={name} tag={choice.tag} items={media.items} step={step} />}
      {choice.kind === "histogram" && media.items.length > 0 && range && <Histogram name={name} items={media.items} step={step} range={range} />}
      {choice.kind === "histogram" && media.items.length > 0 && !range && <p class="soft">{t("These histograms have no values.")}</p>}
      {choice.kind === "text" && item && <LongText key={item.index} name={name} item={item} />}
    </article>
  );
}

/** A text as it is; a long one is folded. */
function LongText({ name, item }: { name: string; item: Item }) {
  const [isOpen, setOpen] = useState(false);
  const text = item.text ?? "";
  const isLong = text.length > FOLDED_LETTERS;
  return (
    <>
      <pre class="media-text" tabIndex={0} role="region" aria-label={`${name}, ${t("step {n}", { n: item.step })}`}>{isLong && !isOpen ? `${text.slice(0, FOLDED_LETTERS)} …` : text}</pre>
      {isLong && <button aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>{isOpen ? t("Fold") : t("Show all {n} letters", { n: count(text.length) })}</button>}
    </>
  );
}

function Nothing() {
  return (
    <>
      <Notice>{t("These {runs} have no images, histograms or texts. Those that TensorBoard's writer puts into event files are shown here:")}</Notice>
      <Copyable text={how(about.value?.kind === "service")} />
    </>
  );
}

chinese({
  "The first {n} of {total} {runs}; a filter or a selection in the list narrows them.": "前 {n} 个{run}，共 {total} 个；可用筛选或在列表中选择来缩小范围。",
  "{n} of these {runs} {n|has|have} nothing under this name.": "其中 {n} 个{run}没有这个名称的内容。",
  "Images": "图像",
  "Histograms": "直方图",
  "Texts": "文本",
  "What": "内容",
  "Step": "步数",
  "Follow the newest": "跟随最新",
  "These histograms have no values.": "这些直方图没有值。",
  "Fold": "折叠",
  "Show all {n} letters": "显示全部 {n} 个字符",
  "These {runs} have no images, histograms or texts. Those that TensorBoard's writer puts into event files are shown here:": "这些{run}没有图像、直方图或文本。TensorBoard 写入事件文件的内容会显示在这里：",
});
