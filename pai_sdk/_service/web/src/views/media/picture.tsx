// One image of a run. It is fetched with the key of the page when it comes on the screen.
import { useEffect, useRef, useState } from "preact/hooks";
import { Refusal, send } from "../../api.ts";
import { number } from "../../format.ts";
import { Dialog } from "../../parts/dialog.tsx";
import { chinese, t } from "../../words.ts";
import { itemAt, type Item } from "./media_data.ts";

const SMALL = 128; // pixels: below, a picture is enlarged without smoothing
const TYPES: Record<string, string> = { "image/png": "png", "image/jpeg": "jpg", "image/gif": "gif" };

interface Loaded {
  url: string;
  ending: string;
}

interface Props {
  run: string;
  name: string;
  tag: string;
  items: readonly Item[];
  step: number | undefined;
}

export function Picture({ run, name, tag, items, step }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [isSeen, setSeen] = useState(false);
  const [isLarge, setLarge] = useState(false);
  useEffect(() => {
    const watcher = new IntersectionObserver((found) => found.some((one) => one.isIntersecting) && setSeen(true), { rootMargin: "200px" });
    watcher.observe(box.current as HTMLElement);
    return () => watcher.disconnect();
  }, []);
  const item = itemAt(items, step);
  const [loaded, error] = useImage(run, tag, isSeen ? item : undefined);
  return (
    <div class="picture" ref={box}>
      {error && <p class="bad">{error}</p>}
      {!error && item && (
        <button class="plain" aria-label={t("Enlarge {name}, step {step}", { name, step: item.step })} onClick={() => setLarge(true)}>
          <Shown loaded={loaded} item={item} text="" />
        </button>
      )}
      {isLarge && item && <Large run={run} name={name} tag={tag} items={items} first={items.indexOf(item)} close={() => setLarge(false)} />}
    </div>
  );
}

function Shown({ loaded, item, text }: { loaded: Loaded | undefined; item: Item; text: string }) {
  const ratio = item.width && item.height ? `${item.width} / ${item.height}` : "1";
  if (!loaded) return <span class="picture-place" style={{ aspectRatio: ratio }} />;
  return <img src={loaded.url} alt={text} class={(item.width ?? SMALL) < SMALL ? "pixels" : ""} style={{ aspectRatio: ratio }} />;
}

/** One image over the page, with those before and after it. */
function Large({ run, name, tag, items, first, close }: Omit<Props, "step"> & { first: number; close: () => void }) {
  const [at, setAt] = useState(first);
  const item = items[Math.min(at, items.length - 1)] as Item;
  const [loaded, error] = useImage(run, tag, item);
  const move = (event: KeyboardEvent): void => {
    if (event.key === "ArrowLeft") setAt(Math.max(0, at - 1));
    if (event.key === "ArrowRight") setAt(Math.min(items.length - 1, at + 1));
  };
  const size = item.width && item.height ? `, ${item.width} × ${item.height}` : "";
  return (
    <Dialog title={`${name}: ${tag}`} close={close}>
      <div class="picture large" onKeyDown={move}>
        {error ? <p class="bad">{error}</p> : <Shown loaded={loaded} item={item} text={`${name}, ${tag}, ${t("step {n}", { n: item.step })}`} />}
        <p class="soft" aria-live="polite">{t("step {n}", { n: number(item.step, 15) })}{size}</p>
        <div class="tools">
          <button disabled={at <= 0} onClick={() => setAt(at - 1)}>← {t("Earlier")}</button>
          <button disabled={at >= items.length - 1} onClick={() => setAt(at + 1)}>{t("Later")} →</button>
          {loaded && <a class="button" href={loaded.url} download={fileName(name, tag, item, loaded)}>{t("Download")}</a>}
          <button class="main" autofocus onClick={close}>{t("Close")}</button>
        </div>
      </div>
    </Dialog>
  );
}

function fileName(name: string, tag: string, item: Item, { ending }: Loaded): string {
  return `${`${name}-${tag}-${item.step}`.replace(/[^\p{L}\p{N}.-]+/gu, "_")}.${ending}`;
}

/** An image as an address that only this page knows. The last one stays until the next one has come. */
function useImage(run: string, tag: string, item: Item | undefined): [Loaded | undefined, string] {
  const [loaded, setLoaded] = useState<Loaded | undefined>(undefined);
  const [error, setError] = useState("");
  useEffect(() => {
    if (!item) return undefined;
    const asking = new AbortController();
    loadImage(run, tag, item.index, asking.signal).then(
      (found) => {
        if (asking.signal.aborted) return URL.revokeObjectURL(found.url);
        setLoaded(found);
        setError("");
      },
      (problem: unknown) => {
        if (!asking.signal.aborted) setError(problem instanceof Refusal ? problem.message : t("The image could not be loaded."));
      },
    );
    return () => asking.abort();
  }, [run, tag, item?.index, item?.wall]);
  useEffect(() => () => loaded && URL.revokeObjectURL(loaded.url), [loaded]);
  return [loaded, error];
}

async function loadImage(run: string, tag: string, index: number, signal: AbortSignal): Promise<Loaded> {
  const content = await (await send("image", { run, query: { tag, index }, signal })).blob();
  const ending = TYPES[content.type];
  if (!ending) throw new Refusal(200, "", t("This is not an image that the page can show."));
  return { url: URL.createObjectURL(content), ending };
}

chinese({
  "Enlarge {name}, step {step}": "放大 {name}，第 {step} 步",
  "step {n}": "第 {n} 步",
  "Earlier": "上一张",
  "Later": "下一张",
  "Download": "下载",
  "Close": "关闭",
  "The image could not be loaded.": "图像无法加载。",
  "This is not an image that the page can show.": "页面无法显示这种图像。",
});
