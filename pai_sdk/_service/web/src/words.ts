// The texts of the page, in English and Chinese.
//
// The English text is the key. Each file has the Chinese of its own texts in a call of `chinese` at its
// end, which the build takes out of it: they are one script, `chinese.ts`. A test finds texts without.
import { signal } from "@preact/signals";
import { about } from "./place.ts";

type Language = "en" | "zh";

const STORED = "pai-ui-language";
const NOUNS: Readonly<Record<string, string>> = { run: "job", runs: "jobs", Runs: "Jobs" };
const translations = new Map<string, string>();
const known = signal(0); // the number of translations: texts are drawn again when there are more

export const language = signal<Language>("en");

/** Reads the storage, which takes a while in a new browser: the first request is sent before. */
export function beginLanguage(): void {
  language.value = first();
}

export function setLanguage(wanted: Language): void {
  language.value = wanted;
  localStorage.setItem(STORED, wanted);
}

/** Adds the Chinese of texts. */
export function chinese(texts: Readonly<Record<string, string>>): void {
  for (const [english, translated] of Object.entries(texts)) translations.set(english, translated);
  known.value = translations.size;
}

/** All texts with their Chinese; empty until they are loaded. */
export function translated(): ReadonlyMap<string, string> {
  void known.value;
  return translations;
}

/**
 * A text in the language of the page; `{name}` stands for a value. `{run}`, `{runs}` and `{Runs}` are a service's
 * jobs, or the runs of a folder. `{n|run|runs}` is the first word where the value `n` is 1, else the second.
 */
export function t(english: string, values: Readonly<Record<string, string | number>> = {}): string {
  const text = (language.value === "zh" && known.value > 0 && translations.get(english)) || english;
  return text.replace(/\{(\w+)(?:\|([^|}]+)\|([^}]+))?\}/g, (whole, name: string, one?: string, several?: string) => {
    const word = String(values[name]) === "1" ? one : several;
    return word ? (noun(word) ?? word) : String(values[name] ?? noun(name) ?? whole);
  });
}

function noun(name: string): string | undefined {
  const isJob = about.value?.kind === "service";
  if (NOUNS[name] && language.value === "zh") return isJob ? "作业" : "运行";
  return isJob ? NOUNS[name] : NOUNS[name] && name;
}

function first(): Language {
  const stored = localStorage.getItem(STORED);
  if (stored === "en" || stored === "zh") return stored;
  return navigator.language.startsWith("zh") ? "zh" : "en";
}
