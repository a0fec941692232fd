// Light or dark: as the system has it, or as the switch says.
import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const STORED = "pai-ui-theme";
const dark = window.matchMedia("(prefers-color-scheme: dark)");

export const theme = signal<Theme>("system");
/** Changes whenever colours do; canvases draw again. */
export const isDark = signal(false);

export function setTheme(wanted: Theme): void {
  localStorage.setItem(STORED, wanted);
  theme.value = wanted;
  apply();
}

export function beginTheme(): void {
  theme.value = (localStorage.getItem(STORED) as Theme | null) ?? "system";
  dark.addEventListener("change", apply);
  apply();
}

/** A colour of the style sheet (`--text`) as canvases need it. */
export function styleColour(name: string): string {
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.color = `var(${name})`;
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

function apply(): void {
  const wanted = theme.value === "system" ? (dark.matches ? "dark" : "light") : theme.value;
  document.documentElement.style.colorScheme = wanted;
  document.documentElement.dataset.theme = wanted;
  isDark.value = wanted === "dark";
}
