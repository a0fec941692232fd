// The colour of a run: by its id, so it is the same in every view, with every filter, on every day.
//
// Eight hues that colour-blind eyes tell apart (after Okabe and Ito), each in three lightnesses.
const HUES = [
  [205, 78, 44], [28, 92, 46], [162, 84, 33], [326, 48, 56], [48, 90, 40], [201, 75, 58], [15, 80, 52], [268, 45, 58],
] as const;
const SHIFTS = [0, -10, 12];

export function colourOf(id: string): string {
  const mark = hash(id);
  const [hue, saturation, lightness] = HUES[mark % HUES.length] as (typeof HUES)[number];
  const shift = SHIFTS[Math.floor(mark / HUES.length) % SHIFTS.length] as number;
  return `hsl(${hue} ${saturation}% ${lightness + shift}%)`;
}

function hash(text: string): number {
  let mark = 2166136261;
  for (let at = 0; at < text.length; at++) mark = Math.imul(mark ^ text.charCodeAt(at), 16777619);
  return (mark ^ (mark >>> 15)) >>> 0;
}
