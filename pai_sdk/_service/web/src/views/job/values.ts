// Values of the service that JSON cannot have as numbers.

/** A number; NaN and infinities come as text, as Python writes them. */
export function numberOf(value: number | string | null | undefined): number | null {
  if (value === null || value === undefined || typeof value === "number") return value ?? null;
  return Number(value.replace(/^(-?)inf.*/i, "$1Infinity"));
}
