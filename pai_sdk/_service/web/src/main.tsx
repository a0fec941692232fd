// The page: who is signed in, which place it is about, which view is shown.
import { effect } from "@preact/signals";
import { render } from "preact";
import { address, change, field } from "./address.ts";
import { ask, isSignedIn, refused, Refusal, signIn } from "./api.ts";
import { about, type About } from "./place.ts";
import { writeTurning } from "./parts/direction.ts";
import { Head } from "./parts/head.tsx";
import { loaded } from "./parts/loaded.tsx";
import { beginList, list, listError } from "./runs.ts";
import { isKept, onSession } from "./session_key.ts";
import { beginStream } from "./stream.ts";
import { beginTheme } from "./theme.ts";
import { beginTold } from "./told.ts";
import { List as ListView } from "./views/list.tsx";
import { SignIn } from "./views/sign_in.tsx";
import { beginLanguage, language } from "./words.ts";
import "./style.css";

const List = Object.assign(ListView, { load: () => undefined }); // most open this one first
const charts = () => import("./views/charts.ts");
const others = () => import("./views/others.ts");
const VIEWS = {
  list: List,
  curves: loaded(async () => (await charts()).Curves),
  compare: loaded(async () => (await charts()).Compare),
  hparams: loaded(async () => (await others()).Hparams),
  media: loaded(async () => (await others()).Media),
  queue: loaded(async () => (await others()).Queue),
  schedules: loaded(async () => (await others()).Schedules),
  study: loaded(async () => (await others()).Study),
  admin: loaded(async () => (await others()).Admin),
  pipelines: loaded(async () => (await others()).Pipelines),
};
const Job = loaded(async () => (await charts()).Job);
const OPENING_MS = 150;
const view = field("view", "list");
const run = field("run");

function Page() {
  document.documentElement.lang = language.value === "zh" ? "zh-CN" : "en";
  if (isSignedIn.value === false) return <SignIn refused={refused.value} />;
  if (!about.value) return <p class="soft opening" aria-live="polite">…</p>;
  const View = viewNow();
  return (
    <>
      <Head />
      {run.value ? <Job key={run.value} id={run.value} /> : <View />}
    </>
  );
}

function viewNow() {
  return Object.hasOwn(VIEWS, view.value) ? VIEWS[view.value as keyof typeof VIEWS] : List;
}

async function begin(): Promise<void> {
  const signingIn = useCode();
  beginTheme();
  beginLanguage();
  writeTurning();
  effect(() => void (language.value === "zh" && import("./chinese.ts")));
  (run.value ? Job : viewNow()).load(); // beside the first requests
  drawSoon();
  onSession((isIn) => void useSession(isIn));
  await signingIn;
  await enter();
  // A link that is pasted into a tab of the page changes its fragment only; nothing is loaded.
  effect(() => void (address.value.code && useCode().then(async (isIn) => isIn && (await isKept, location.reload()))));
}

/** Draws the page when it has something to show, so that a fast service is drawn once; or after a moment. */
function drawSoon(): void {
  let isDrawn = false;
  const draw = (): void => {
    if (!isDrawn) render(<Page />, document.getElementById("page") as HTMLElement);
    isDrawn = true;
  };
  setTimeout(draw, OPENING_MS);
  effect(() => {
    if (!isDrawn && ((about.value && list.value) || isSignedIn.value === false || listError.value)) draw();
  });
}

/** Shows what another tab has changed: signed in or out, or signed in as someone else. */
async function useSession(isIn: boolean): Promise<void> {
  const isSame = isIn && isSignedIn.value && (await ask<About>("about")).user === about.value?.user;
  if (!isSame) location.reload();
}

// The profile of the settings with which the link was made: code for notebooks has it.
const PROFILE = "pai-ui-profile";

/** Signs in with the code of the address, if there is one; returns whether it has. */
async function useCode(): Promise<boolean> {
  const { code, profile = "" } = address.value;
  if (!code) return false;
  refused.value = "";
  const answer = signIn(code);
  localStorage.setItem(PROFILE, profile);
  change({ code: "", profile: "" }, { replace: true }); // it works once, and is of no use in the history
  try {
    await answer;
    return true;
  } catch (error) {
    if (error instanceof Refusal) refused.value = error.message;
    return false;
  }
}

async function enter(): Promise<void> {
  const asked = ask<About>("about");
  beginList(); // beside it
  try {
    const found = await asked;
    const profile = localStorage.getItem(PROFILE) ?? "";
    about.value = found.session && /^[\w.-]+$/.test(profile) ? { ...found, session: `Session(profile="${profile}")` } : found;
  } catch (error) {
    if (error instanceof Refusal && error.status === 401) return;
    return again();
  }
  beginStream();
  if (about.value?.kind === "service") beginTold();
}

function again(): void {
  setTimeout(() => void enter(), 2000);
}

void begin();
