// The colour of a run: by its id, so it is the same in every view, with every filter, on every day.
//
// Eight hues that colour-blind eyes tell apart (after Okabe and Ito), each in three lightnesses.
const HUES = [
  [212, 75, 48], [30, 92, 47], [160, 84, 34], [322, 55, 55], [50, 85, 40], [190, 70, 45], [2, 68, 52], [266, 48, 58],
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
  mark = Math.imul(mark ^ (mark >>> 16), 0x85ebca6b);
  mark = Math.imul(mark ^ (mark >>> 13), 0xc2b2ae35);
  return (mark ^ (mark >>> 16)) >>> 0;
}
