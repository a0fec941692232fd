// Characters that change the order in which others are drawn, as in a file name that seems to end with another type.
import { Fragment, options } from "preact";

const TURNING = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const DRAWN = ["children", "title", "aria-label"];

/** A text in which they are written as codes: `report\u202eexe.png`. */
export function written(text: string): string {
  return text.replace(TURNING, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** Draws every text of the page that way. */
export function writeTurning(): void {
  const before = options.vnode;
  options.vnode = (vnode) => {
    if (typeof vnode.type === "string" || vnode.type === Fragment) {
      const props = vnode.props as Record<string, unknown>;
      for (const name of DRAWN) if (name in props) props[name] = inAll(props[name]);
    }
    before?.(vnode);
  };
}

function inAll(value: unknown): unknown {
  if (typeof value === "string") return written(value);
  return Array.isArray(value) ? value.map(inAll) : value;
}
