// A button with a box of things to choose from.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

/** A button that opens a box below it; Escape, a click elsewhere and a link in it close it. */
export function Menu({ title, label, children }: { title: string; label?: string; children: ComponentChildren }) {
  const box = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    const close = (event: Event): void => {
      const details = box.current;
      if (!details?.open) return;
      const isEscape = event instanceof KeyboardEvent && event.key === "Escape";
      if (isEscape || (event.type === "pointerdown" && !details.contains(event.target as Node))) details.open = false;
      if (isEscape) details.querySelector("summary")?.focus();
    };
    document.addEventListener("pointerdown", close);
    document.addEventListener("keydown", close);
    return () => {
      document.removeEventListener("pointerdown", close);
      document.removeEventListener("keydown", close);
    };
  }, []);
  const follow = (event: Event): void => {
    if (box.current && (event.target as HTMLElement).closest("a")) box.current.open = false;
  };
  return (
    <details class="menu" ref={box}>
      <summary class="button" aria-label={label} title={label}>{title}</summary>
      <div class="menu-box" onClick={follow}>{children}</div>
    </details>
  );
}
