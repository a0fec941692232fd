// A button with a box of things to choose from.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

/** A button that opens a box below it; Escape, a click elsewhere and a link in it close it, and each button in one of actions. */
export function Menu({ title, label, isOfActions = false, children }: { title: string; label?: string; isOfActions?: boolean; children: ComponentChildren }) {
  const box = useRef<HTMLDetailsElement>(null);
  const [isOpen, setOpen] = useState(false); // what is in a closed box is not drawn: it may be hundreds of columns
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
    if (!box.current || !(event.target as HTMLElement).closest(isOfActions ? "a, button" : "a")) return;
    box.current.open = false;
    box.current.querySelector("summary")?.focus(); // a dialog gives the focus back to where it was
  };
  return (
    <details class={isOfActions ? "menu actions" : "menu"} ref={box} onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary class="button" aria-label={label} title={label}>{title}</summary>
      {isOpen && <div class="menu-box" onClick={follow}>{children}</div>}
    </details>
  );
}
