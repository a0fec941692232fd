// The state of the page, in the fragment of its address: `#view=curves&q=status=Running`.
//
// What is in the address can be sent to somebody, bookmarked and gone back to. Values are written as they are as far
// as a fragment allows that.
import { computed, signal, type ReadonlySignal } from "@preact/signals";

export type Fields = Readonly<Record<string, string>>;

export function readFields(fragment: string): Fields {
  const fields: Record<string, string> = {};
  for (const part of fragment.replace(/^#/, "").split("&")) {
    const at = part.indexOf("=");
    if (at > 0) fields[decoded(part.slice(0, at))] = decoded(part.slice(at + 1));
  }
  return fields;
}

export function writeFields(fields: Fields): string {
  return Object.entries(fields)
    .filter(([, value]) => value !== "")
    .map(([name, value]) => `${encoded(name)}=${encoded(value)}`)
    .join("&");
}

export const address = signal<Fields>(typeof location === "undefined" ? {} : readFields(location.hash));

if (typeof window !== "undefined") {
  window.addEventListener("hashchange", () => (address.value = readFields(location.hash)));
}

/** One field of the address, as a signal; `otherwise` where it is missing. */
export function field(name: string, otherwise = ""): ReadonlySignal<string> {
  return computed(() => address.value[name] ?? otherwise);
}

/** Changes some fields; an empty value removes one. `replace` makes no entry in the browser's history. */
export function change(fields: Fields, { replace = false } = {}): void {
  show({ ...address.value, ...fields }, replace);
}

/** Another place of the page: only these fields. */
export function go(fields: Fields): void {
  show(fields, false);
}

/** The `href` of a link to another place of the page. */
export function linkTo(fields: Fields): string {
  return `#${writeFields(fields)}`;
}

// What the view of one run has in the address, besides the run and its tab; and the filter of the audit log.
const OF_TABS = ["path", "table", "offset", "with", "time", "line", "instance", "file", "by", "level", "context", "find", "how", "user", "action"];

/** The address without what only one tab of a run has a use for. */
export function withoutTab(): Fields {
  return Object.fromEntries(Object.entries(address.value).filter(([name]) => name !== "tab" && !OF_TABS.includes(name)));
}

/** The address without the run, of a training or a pipeline, or the search: the list, or another view, as it was before. */
export function withoutRun(): Fields {
  const { run: _run, pipeline: _pipeline, study: _study, ...kept } = withoutTab();
  return kept;
}

/** The fields of a view that others can open: without a run, and without the code of a link. */
export function viewFields(fields: Fields = address.value): Fields {
  return Object.fromEntries(Object.entries(fields).filter(([name]) => !["run", "pipeline", "tab", "code", ...OF_TABS].includes(name)));
}

function show(fields: Fields, replace: boolean): void {
  const fragment = `#${writeFields(fields)}`;
  address.value = readFields(fragment);
  if (fragment === location.hash) return;
  if (replace) history.replaceState(null, "", fragment);
  else history.pushState(null, "", fragment);
}

if (typeof window !== "undefined") {
  window.addEventListener("popstate", () => (address.value = readFields(location.hash)));
}

function encoded(text: string): string {
  return text.replace(/[%&#+]/g, (sign) => encodeURIComponent(sign)).replace(/ /g, "+");
}

function decoded(text: string): string {
  const spaced = text.replace(/\+/g, " ");
  try {
    return decodeURIComponent(spaced);
  } catch {
    return spaced;
  }
}
