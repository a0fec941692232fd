// The line at the top: where one is, where one can go, and whether the service responds.
import { useLayoutEffect, useRef } from "preact/hooks";
import { field, linkTo, withoutRun } from "../address.ts";
import { duration } from "../format.ts";
import { about, can } from "../place.ts";
import { said } from "../service_texts.ts";
import { lostSince } from "../stream.ts";
import { ToldJobs } from "./bell.tsx";
import { now } from "./clock.ts";
import { setTheme, theme, type Theme } from "../theme.ts";
import { UserMenu } from "./user_menu.tsx";
import { chinese, language, setLanguage, t } from "../words.ts";

const view = field("view", "list");
const run = field("run");
const OF_LIST = ["compare", "study"]; // views that the list leads to
const THEMES: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };
const SIGNS: Record<Theme, string> = { system: "◐", light: "☀", dark: "☾" };

export function Head() {
  const kept = withoutRun();
  const views = { list: t("{Runs}"), curves: t("Curves"), hparams: t("Hyperparameters"), media: t("Media"), ...(about.value?.kind === "service" ? { queue: t("Queue"), schedules: t("Schedules") } : {}), ...(can("pipelines") ? { pipelines: t("Pipelines") } : {}) };
  const current = run.value || OF_LIST.includes(view.value) ? "list" : view.value;
  const isBelow = current !== view.value || run.value !== "";
  const nav = useRef<HTMLElement>(null);
  // On a phone, the current view may be beside the screen. Only the views are scrolled, not the page.
  useLayoutEffect(() => {
    const right = nav.current?.querySelector("[aria-current]")?.getBoundingClientRect().right ?? 0;
    if (nav.current) nav.current.scrollLeft += right - nav.current.getBoundingClientRect().right;
  }, [current]);
  const themes: Record<Theme, string> = { system: t("Colours of the system"), light: t("Light"), dark: t("Dark") };
  return (
    <header class="head">
      <a class="home" href={linkTo({})}>pai</a>
      <span class="place soft" title={about.value?.place}>{said(about.value?.place ?? "")}</span>
      <nav ref={nav} aria-label={t("Views")}>
        {Object.entries(views).map(([name, text]) => (
          <a key={name} href={linkTo({ ...kept, view: name === "list" ? "" : name })} aria-current={name !== current ? undefined : isBelow ? "true" : "page"}>
            {text}
          </a>
        ))}
      </nav>
      <ToldJobs />
      <Connection />
      <button class="plain" title={themes[theme.value]} aria-label={themes[theme.value]} onClick={() => setTheme(THEMES[theme.value])}>
        {SIGNS[theme.value]}
      </button>
      <button class="plain" lang={language.value === "zh" ? "en" : "zh"} onClick={() => setLanguage(language.value === "zh" ? "en" : "zh")}>
        {language.value === "zh" ? "English" : "中文"}
      </button>
      {about.value?.kind === "service" && <UserMenu {...about.value} />}
    </header>
  );
}

function Connection() {
  const since = lostSince.value;
  return (
    <span class={since ? "connection lost" : "connection"} role="status">
      {since ? t("The service does not answer since {time}", { time: duration(now.value - since / 1000) }) : t("live")}
    </span>
  );
}

chinese({
  "{Runs}": "{run}",
  "Curves": "曲线",
  "Hyperparameters": "超参数",
  "Media": "媒体",
  "Pipelines": "流水线",
  "Schedules": "定时任务",
  "Views": "视图",
  "Colours of the system": "跟随系统配色",
  "Light": "浅色",
  "Dark": "深色",
  "The service does not answer since {time}": "服务已 {time} 没有响应",
  "live": "实时",
});
