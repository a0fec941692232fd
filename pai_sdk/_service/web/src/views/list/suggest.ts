// What the filter box suggests: keys, then operators, then values that the runs of the list have.
import { about } from "../../place.ts";
import type { Run, RunList } from "../../runs.ts";
import { keysOf, quoted, splitKey } from "./columns.ts";

const TEXT = ["=", "!=", "~"];
const TIME = [">", "<"];
const NUMBER = ["<", ">", "="];
const TIMES = ["-1h", "-1d", "-7d"];
/** Keys that need no group: their operators, and values besides those of the runs. */
const PLAIN: Readonly<Record<string, readonly [operators: string[], values: string[]]>> = {
  id: [TEXT, []],
  name: [TEXT, []],
  status: [TEXT, ["Running", "Succeed", "Failed", "Terminated", "Submitted"]],
  error: [TEXT, []],
  owner: [TEXT, []],
  instance_type: [TEXT, []],
  cause: [["~", "=", "!="], []],
  sub_status: [TEXT, []],
  tags: [TEXT, []],
  note: [["~"], []],
  star: [["="], ["true"]],
  archived: [["="], ["true"]],
  created: [TIME, TIMES],
  started: [TIME, TIMES],
  updated: [TIME, TIMES],
  ended: [TIME, TIMES],
  duration: [TIME, ["10m", "1h", "1d"]],
  nan: [NUMBER, ["0"]],
  inf: [NUMBER, ["0"]],
  damaged: [NUMBER, ["0"]],
  instance_count: [NUMBER, ["1"]],
  cost: [NUMBER, []],
};
const OF_JOBS = ["owner", "instance_type", "instance_count", "cause", "sub_status", "tags", "note", "star", "archived"];
const LASTING = ["owner", "instance_type", "tags"]; // whose values are suggested although the list has them no more
const WITH_VALUES = ["status", "name", "sub_status", ...LASTING]; // whose values are suggested
const MOST = 8;
const MOST_VALUES = 1000; // different ones of a hyperparameter that are looked at

const remembered = new Map<string, Set<unknown>>();

/** Keeps the values of a list for later ones: those of a filter have the values that the filter names. */
export function remember({ runs }: RunList): void {
  for (const key of LASTING) {
    const values = remembered.get(key) ?? new Set();
    remembered.set(key, values);
    for (const run of runs) for (const value of [run[key as keyof Run]].flat()) if (value && values.size < MOST_VALUES) values.add(value);
  }
}

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
  const plain = Object.keys(PLAIN).filter((key) => (key === "cost" ? list?.runs.some((run) => run.cost !== undefined) : about.value?.kind === "service" || !OF_JOBS.includes(key)));
  const keys = [...plain, ...(list ? keysOf(list).filter((key) => key.includes(".")).map(shortKey) : [])];
  if (keys.includes(word)) return operatorsOf(word).map((operator) => word + operator);
  const wanted = word.toLowerCase();
  const fitting = keys.filter((key) => key.toLowerCase().includes(wanted));
  return [...fitting.filter((key) => key.toLowerCase().startsWith(wanted)), ...fitting.filter((key) => !key.toLowerCase().startsWith(wanted))];
}

function completedValues(key: string, operator: string, values: string, list: RunList | undefined): string[] {
  const at = values.lastIndexOf(",") + 1;
  const [earlier, begun] = [values.slice(0, at), values.slice(at).toLowerCase()];
  const known = valuesOf(key, list).filter((value) => value.toLowerCase().startsWith(begun));
  return known.map((value) => `${key}${operator}${earlier}${/[\s,"']/.test(value) ? JSON.stringify(value) : value}`);
}

function operatorsOf(key: string): string[] {
  if (PLAIN[key]) return PLAIN[key][0];
  return key.startsWith("labels.") ? TEXT : key.startsWith("hparams.") ? ["=", "<", ">", "!="] : NUMBER;
}

function valuesOf(key: string, list: RunList | undefined): string[] {
  const values = new Set(key === "status" ? Object.keys(list?.statuses ?? {}) : key === "owner" && about.value?.user ? [about.value.user] : []);
  const [group, quotedName] = splitKey(key);
  const name = quotedName.replace(/^"(.*)"$/, "$1");
  for (const run of list?.runs ?? []) {
    const value = group ? { hparams: run.hparams, labels: run.labels }[group]?.[name] : WITH_VALUES.includes(key) ? run[key as keyof Run] : undefined;
    for (const one of [value].flat()) if (one !== undefined && one !== null && values.size < MOST_VALUES) values.add(String(one));
  }
  for (const value of [...(PLAIN[key]?.[1] ?? []), ...(remembered.get(key) ?? [])]) values.add(String(value));
  if (PLAIN[key] && !WITH_VALUES.includes(key)) return [...values];
  return [...values].sort((one, other) => Number(one) - Number(other) || one.localeCompare(other));
}

/** A key as short as the grammar allows it: metrics need no `metrics.` unless they are called like something else. */
export function shortKey(key: string): string {
  const short = quoted(key).replace(/^metrics\./, "");
  return PLAIN[short] || /^(hparams|labels|metrics)\./.test(short) ? quoted(key) : short;
}
