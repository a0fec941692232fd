// Colours of curves as numbers, and which of them a run has.
//
// Eight colours for each theme. They are at least 3:1 against the background, and the two that are most alike are 0.15
// apart in OKLab, 0.11 for eyes without red, green or blue cones (simulated after Machado and others, 2009); the hues
// of Okabe and Ito had 0.02.
type Colour = readonly [hue: number, saturation: number, lightness: number];
export const PALETTES: Record<"light" | "dark", readonly Colour[]> = {
  light: [[220, 96, 25], [18, 93, 51], [160, 50, 41], [308, 76, 64], [39, 77, 25], [201, 66, 34], [341, 59, 25], [273, 89, 52]],
  dark: [[226, 96, 54], [34, 96, 49], [164, 50, 58], [309, 52, 44], [52, 96, 60], [179, 95, 86], [354, 91, 48], [258, 89, 76]],
};
export const MOST_SLOTS = PALETTES.light.length;
const SHIFTS = [0, 9, 18]; // of the lightness, away from that of black, or of white

/** The colour of a run by its id; with a slot, that of the slot. */
export function colourIn(theme: "light" | "dark", id: string, slot?: number): string {
  const mark = hash(id);
  const colours = PALETTES[theme];
  const [hue, saturation, lightness] = colours[slot ?? mark % colours.length] as Colour;
  const shift = slot === undefined ? (SHIFTS[Math.floor(mark / colours.length) % SHIFTS.length] as number) : 0;
  const isDark = lightness < (theme === "light" ? 45 : 62);
  return `hsl(${hue} ${saturation}% ${lightness + (isDark ? shift : -shift)}%)`;
}

/** A slot of the palette for each of a few names: its usual one, or the next that is free; none for too many names. */
export function slotsOf(names: readonly string[]): Map<string, number> {
  const slots = new Map<string, number>();
  if (names.length > MOST_SLOTS) return slots;
  const taken = new Set<number>();
  for (const name of names) {
    let slot = hash(name) % MOST_SLOTS;
    while (taken.has(slot)) slot = (slot + 1) % MOST_SLOTS;
    taken.add(slot);
    slots.set(name, slot);
  }
  return slots;
}

/** Six letters and digits for a name, so that addresses stay short. */
export function markOf(name: string): string {
  return hash(name).toString(36).padStart(6, "0").slice(-6);
}

function hash(text: string): number {
  let mark = 2166136261;
  for (let at = 0; at < text.length; at++) mark = Math.imul(mark ^ text.charCodeAt(at), 16777619);
  mark = Math.imul(mark ^ (mark >>> 16), 0x85ebca6b);
  mark = Math.imul(mark ^ (mark >>> 13), 0xc2b2ae35);
  return (mark ^ (mark >>> 16)) >>> 0;
}
