// What the filter box suggests: keys, then operators, then values that the runs of the list have.
import type { Run, RunList } from "../../runs.ts";
import { keysOf, quoted, splitKey } from "./columns.ts";

const TEXTS = ["id", "name", "status", "error"];
const TIMES = ["created", "updated", "ended"];
const COUNTS = ["nan", "inf", "damaged"];
const PLAIN = [...TEXTS, ...TIMES, ...COUNTS];
const STATUSES = ["Running", "Succeed", "Failed", "Terminated", "Queuing"];
const MOST = 8;
const MOST_VALUES = 1000; // different ones of a hyperparameter that are looked at

/** The text with its last word replaced by each suggestion. */
export function suggestions(text: string, list: RunList | undefined): string[] {
  const word = /(?:"(?:\\.|[^"\\])*"?|[^\s"])*$/.exec(text)?.[0] ?? "";
  if (!word) return [];
  const before = text.slice(0, text.length - word.length);
  const [, key, operator, values] = /^((?:"(?:\\.|[^"\\])*"|[^"=<>!~])+)(!=|!~|<=|>=|=|<|>|~)(.*)$/.exec(word) ?? [];
  const found = key && operator ? completedValues(key, operator, values ?? "", list) : completedKeys(word, list);
  return found.filter((one) => one !== word).slice(0, MOST).map((one) => before + one);
}

function completedKeys(word: string, list: RunList | undefined): string[] {
  const keys = [...PLAIN, ...(list ? keysOf(list).map(shortKey) : [])];
  if (keys.includes(word)) return operatorsOf(word).map((operator) => word + operator);
  const wanted = word.toLowerCase();
  const fitting = keys.filter((key) => key.toLowerCase().includes(wanted));
  return [...fitting.filter((key) => key.toLowerCase().startsWith(wanted)), ...fitting.filter((key) => !key.toLowerCase().startsWith(wanted))];
}

function completedValues(key: string, operator: string, values: string, list: RunList | undefined): string[] {
  const at = values.lastIndexOf(",") + 1;
  const [earlier, begun] = [values.slice(0, at), values.slice(at).toLowerCase()];
  const known = valuesOf(key, list?.runs ?? []).filter((value) => value.toLowerCase().startsWith(begun));
  return known.map((value) => `${key}${operator}${earlier}${/[\s,"']/.test(value) ? JSON.stringify(value) : value}`);
}

function operatorsOf(key: string): string[] {
  if (TEXTS.includes(key) || key.startsWith("labels.")) return ["=", "!=", "~"];
  if (TIMES.includes(key)) return [">", "<"];
  return key.startsWith("hparams.") ? ["=", "<", ">", "!="] : ["<", ">", "="];
}

function valuesOf(key: string, runs: readonly Run[]): string[] {
  if (TIMES.includes(key)) return ["-1h", "-1d", "-7d"];
  if (COUNTS.includes(key)) return ["0"];
  const values = new Set<string>();
  const [group, quotedName] = splitKey(key);
  const name = quotedName.replace(/^"(.*)"$/, "$1");
  for (const run of runs) {
    const value = key === "status" ? run.status : key === "name" ? run.name : group === "hparams" ? run.hparams?.[name] : group === "labels" ? run.labels?.[name] : undefined;
    if (value !== undefined && value !== null && values.size < MOST_VALUES) values.add(String(value));
  }
  if (key === "status") for (const status of STATUSES) values.add(status);
  return [...values].sort((one, other) => Number(one) - Number(other) || one.localeCompare(other));
}

/** A key as short as the grammar allows it: metrics need no `metrics.` unless they are called like something else. */
export function shortKey(key: string): string {
  const short = quoted(key).replace(/^metrics\./, "");
  return PLAIN.includes(short) || /^(hparams|labels|metrics)\./.test(short) ? quoted(key) : short;
}
