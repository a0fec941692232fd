// What runs have that is no number: which tags, and which item a step has.
import type { Run } from "../../runs.ts";

export type Kind = "image" | "histogram" | "text";

export interface Item {
  index: number;
  step: number;
  wall: number;
  text?: string;
  bins?: [number, number, number][]; // left, right, count
  width?: number;
  height?: number;
}

export interface MediaTag {
  tag: string;
  kind: string;
  count: number;
}

export interface RunMedia {
  tags: MediaTag[];
  items: Item[];
  v: string; // the version of the run that this was read at
  chosen: string; // the tag that the items are of
  error: string;
}

export type Choice = { kind: Kind; tag: string };
export type RunPart = Pick<Run, "id" | "v" | "name">;

export const KINDS: readonly Kind[] = ["image", "histogram", "text"];

/** `image:train/samples` as kind and tag; undefined for anything else. */
export function readChoice(text: string): Choice | undefined {
  const at = text.indexOf(":");
  const kind = KINDS.find((one) => one === text.slice(0, at));
  return kind && at + 1 < text.length ? { kind, tag: text.slice(at + 1) } : undefined;
}

export function writeChoice({ kind, tag }: Choice): string {
  return `${kind}:${tag}`;
}

/** The tags of several runs, each once, with the number of runs that have it; by kind, then by name. */
export function mergedTags(all: Iterable<RunMedia>): (Choice & { runs: number })[] {
  const found = new Map<string, Choice & { runs: number }>();
  for (const { tags } of all) {
    for (const { tag, kind } of tags) {
      const known = KINDS.find((one) => one === kind);
      if (!known) continue;
      const key = `${known}:${tag}`;
      found.set(key, { kind: known, tag, runs: (found.get(key)?.runs ?? 0) + 1 });
    }
  }
  const place = ({ kind }: Choice): number => KINDS.indexOf(kind);
  return [...found.values()].sort((one, other) => place(one) - place(other) || one.tag.localeCompare(other.tag));
}

/** The newest item that is not after a step; the first one where all are; without a step the newest of all. */
export function itemAt(items: readonly Item[], step: number | undefined): Item | undefined {
  if (step === undefined) return items.at(-1);
  return items.findLast((item) => item.step <= step) ?? items[0];
}
