// The form of a re-run, as data: what was changed in it, and which field a refusal is about.
import type { FormValue } from "./wire.ts";

/** A row of a table of names and values; the text of a value is what is in its field. */
export interface Pair {
  name: string;
  value: string;
}

/** What is in the form: text, or rows, or for switches a truth. */
export type Entered = string | boolean | Pair[];

export function entered(value: FormValue): Entered {
  if (typeof value === "boolean") return value;
  if (value !== null && typeof value === "object") return Object.entries(value).map(([name, one]) => ({ name, value: textOf(one) }));
  return textOf(value);
}

/** The fields that differ from what they were, in the types that they had. */
export function changesOf(before: Readonly<Record<string, FormValue>>, form: Readonly<Record<string, Entered>>): Record<string, FormValue> {
  const changes: Record<string, FormValue> = {};
  for (const [name, old] of Object.entries(before)) {
    const now = form[name];
    if (now === undefined || JSON.stringify(now) === JSON.stringify(entered(old))) continue;
    if (!Array.isArray(now)) changes[name] = typed(now, old);
    else if (!sameRows(now, entered(old) as Pair[])) changes[name] = rowsTyped(now, old as Record<string, FormValue>);
  }
  return changes;
}

function sameRows(rows: Pair[], before: Pair[]): boolean {
  const named = rows.filter(({ name }) => name.trim() !== "");
  return named.length === before.length && before.every((old) => named.some((row) => row.name.trim() === old.name && row.value === old.value));
}

function rowsTyped(rows: Pair[], before: Record<string, FormValue>): Record<string, string | number | boolean | null> {
  const named = rows.map(({ name, value }) => [name.trim(), value] as const).filter(([name]) => name !== "");
  return Object.fromEntries(named.map(([name, value]) => [name, name in before ? (typed(value, before[name] as FormValue) as string) : value]));
}

// A number stays one where it can; the service says what is wrong about the rest.
function typed(text: string | boolean, before: FormValue): FormValue {
  if (typeof text === "boolean") return text;
  if (text === "" && before === null) return null;
  if (text === textOf(before)) return before;
  const isNumber = typeof before === "number" || (before === null && /^-?\d+(\.\d+)?$/.test(text.trim()));
  if (isNumber && text.trim() !== "" && Number.isFinite(Number(text))) return Number(text);
  if (typeof before === "number" && text.trim() === "") return null;
  if (typeof before === "boolean" && (text === "true" || text === "false")) return text === "true";
  return text;
}

const NUMBER = /^-?\d[\d.]*(e-?\d+)?$/;
const LONGEST_NAME = 100;

/** The name of a re-run: that of the job, with the numbers that were changed; `short` has their names in names. */
export function nameWith(name: string, before: Readonly<Record<string, FormValue>>, rows: readonly Pair[], short: Readonly<Record<string, string>>): string {
  return rows.reduce((now, row) => {
    const [part, old, value] = [short[row.name], textOf(before[row.name] ?? null), row.value.trim()];
    if (!part || value === old || !NUMBER.test(value)) return now;
    const marked = `${now}-`;
    const known = `-${part}${old}-`;
    const next = marked.includes(known) ? marked.replace(known, `-${part}${value}-`).slice(0, -1) : `${marked}${part}${value}`;
    return next.length > LONGEST_NAME ? now : next;
  }, name);
}

/** Names that stand in a table more than once: only one of them could be sent. */
export function twice(rows: readonly Pair[]): string[] {
  const given = rows.map(({ name }) => name.trim()).filter(Boolean);
  return [...new Set(given.filter((name, at) => given.indexOf(name) !== at))];
}

// What the request calls the fields of the form.
const FIELDS: Record<string, string> = {
  TrainingJobName: "name", Image: "image", Command: "command", EcsSpec: "instance_type", EcsCount: "instance_count",
  InstanceCount: "instance_count", HyperParameters: "hyperparameters", Environments: "environment", Labels: "labels",
  MaxRunningTimeInSeconds: "max_runtime_s",
};

/** The parts of a refusal: what it says of a field (`hyperparameters.lr: …; labels.a: …`) under its name, the rest under "". */
export function problemsByField(message: string, fields: readonly string[]): Record<string, string[]> {
  const problems: Record<string, string[]> = {};
  for (const line of message.split(/\n|; (?=[\w.[\]-]+: )/).map((text) => text.trim()).filter(Boolean)) {
    const parts = line.includes(": ") ? line.slice(0, line.indexOf(": ")).split(/[.[\]]/) : [];
    const named = parts.map((part) => FIELDS[part] ?? part).find((part) => fields.includes(part)) ?? "";
    (problems[named] ??= []).push(line);
  }
  return problems;
}

/** A token that makes one sending of a form count once, however often the browser repeats it. */
export function newToken(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function textOf(value: FormValue): string {
  if (value === null) return "";
  return typeof value === "string" ? value : typeof value === "object" ? JSON.stringify(value) : String(value);
}
