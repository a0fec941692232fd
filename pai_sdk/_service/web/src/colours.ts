// The colour of a run: by its id, so it is the same in every view, with every filter, on every day.
//
// Up to eight picked runs, or groups of runs, differ clearly: of two with the same colour, the later one takes another.
import { computed, signal } from "@preact/signals";
import { colourIn, slotsOf } from "./palette.ts";
import { picked } from "./runs.ts";
import { isDark } from "./theme.ts";

/** The names of the groups that charts show; empty for runs. */
export const groupNames = signal<readonly string[]>([]);

const slots = computed(() => slotsOf(groupNames.value.length > 0 ? groupNames.value : picked.value));

export function colourOf(id: string): string {
  return colourIn(isDark.value ? "dark" : "light", id, slots.value.get(id));
}
