// The time and the size of the screen, as signals: what counts on by itself, and what a phone shows in another way.
import { computed, signal } from "@preact/signals";

/** In seconds since 1970; changes each second. */
export const now = signal(Date.now() / 1000);
/** The same, each ten seconds. */
export const roughly = computed(() => Math.floor(now.value / 10) * 10);
/** Whether the screen is as narrow as a phone's, as in the style sheets. */
export const isPhone = signal(false);

if (typeof window !== "undefined") {
  setInterval(() => (now.value = Date.now() / 1000), 1000);
  const narrow = window.matchMedia("(max-width: 600px)");
  isPhone.value = narrow.matches;
  narrow.addEventListener("change", () => (isPhone.value = narrow.matches));
}
