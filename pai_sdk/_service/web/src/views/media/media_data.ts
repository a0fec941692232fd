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

export interface RunMedia {
  items: Item[];
  v: string; // the version of the run that this was read at
  chosen: string; // the tag that the items are of
  error: string;
}

export type Choice = { kind: Kind; tag: string };
export type RunPart = Pick<Run, "id" | "v" | "name" | "media">;

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

/** What several runs have, each once; by kind, then by name. */
export function mergedTags(runs: readonly RunPart[]): Choice[] {
  const found = [...new Set(runs.flatMap(({ media }) => media ?? []))].map(readChoice).filter((choice) => choice !== undefined);
  const place = ({ kind }: Choice): number => KINDS.indexOf(kind);
  return found.sort((one, other) => place(one) - place(other) || one.tag.localeCompare(other.tag));
}

/** The newest item that is not after a step; the first one where all are; without a step the newest of all. */
export function itemAt(items: readonly Item[], step: number | undefined): Item | undefined {
  if (step === undefined) return items.at(-1);
  return items.findLast((item) => item.step <= step) ?? items[0];
}
