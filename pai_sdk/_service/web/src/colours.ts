// The colour of a run: by its id, so it is the same in every view, with every filter, on every day.
//
// If at most eight runs are shown, because they were picked or found or there are no more, they differ clearly: of two
// with the same colour, the newer one takes another. The same is true of up to eight groups.
import { computed, signal } from "@preact/signals";
import { colourIn, MOST_SLOTS, slotsOf } from "./palette.ts";
import { shown } from "./runs.ts";
import { isDark } from "./theme.ts";

/** The names of the groups that charts show; empty for runs. */
export const groupNames = signal<readonly string[]>([]);

const names = computed(() => {
  if (groupNames.value.length > 0) return JSON.stringify(groupNames.value);
  if (shown.value.length > MOST_SLOTS) return "[]";
  const byAge = [...shown.value].sort((one, other) => (one.created_at ?? 0) - (other.created_at ?? 0) || (one.id < other.id ? -1 : 1));
  return JSON.stringify(byAge.map(({ id }) => id));
});
const slots = computed(() => slotsOf(JSON.parse(names.value) as string[])); // only made again when the names change

export function colourOf(id: string): string {
  return colourIn(isDark.value ? "dark" : "light", id, slots.value.get(id));
}
