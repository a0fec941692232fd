// The box of the filter: what is typed is applied by Enter, with suggestions while typing, and why it is refused.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { change } from "../../address.ts";
import { filter, list, listError } from "../../runs.ts";
import { Notice } from "../../parts/basics.tsx";
import { chinese, t } from "../../words.ts";
import { remember, suggestions } from "./suggest.ts";

export function FilterBox() {
  const typed = useSignal(filter.value);
  const chosen = useSignal(-1);
  const isOpen = useSignal(false);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => void (typed.value = filter.value), [filter.value]);
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || (event.target as HTMLElement).closest("input:not([type=checkbox]), textarea, select, dialog")) return;
      event.preventDefault();
      input.current?.focus();
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
  useEffect(() => list.value && remember(list.value), [list.value]);
  const suggested = isOpen.value ? suggestions(typed.value, list.value) : [];

  const apply = (text: string): void => {
    isOpen.value = false;
    if (text.trim() !== filter.value) change({ q: text.trim() });
  };
  const take = (suggestion: string): void => {
    typed.value = suggestion;
    chosen.value = -1;
    isOpen.value = true;
    input.current?.focus();
  };
  const onKey = (event: KeyboardEvent): void => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const step = event.key === "ArrowDown" ? 1 : -1;
      chosen.value = suggested.length === 0 ? -1 : (chosen.value + step + suggested.length) % suggested.length;
    } else if (event.key === "Tab" && suggested[chosen.value]) {
      event.preventDefault();
      take(suggested[chosen.value] ?? "");
    } else if (event.key === "Enter") {
      event.preventDefault();
      const suggestion = suggested[chosen.value];
      if (suggestion) take(suggestion);
      else apply(typed.value);
    } else if (event.key === "Escape") {
      event.stopPropagation();
      if (suggested.length > 0) [isOpen.value, chosen.value] = [false, -1];
      else input.current?.blur(); // what was typed stays: it can be applied or cleared by the buttons
    }
  };
  return (
    <div class="filter-box" role="search">
      <input
        id="filter"
        ref={input}
        role="combobox"
        aria-label={t("Filter")}
        aria-expanded={suggested.length > 0}
        aria-controls="filter-suggestions"
        aria-activedescendant={chosen.value >= 0 ? `suggestion-${chosen.value}` : undefined}
        aria-autocomplete="list"
        aria-invalid={listError.value !== ""}
        aria-describedby={listError.value ? "filter-error" : undefined}
        placeholder="status=Running loss<0.3 hparams.lr>=0.01"
        autocomplete="off"
        spellcheck={false}
        value={typed.value}
        onInput={(event) => {
          typed.value = event.currentTarget.value;
          isOpen.value = true;
          chosen.value = -1;
        }}
        onKeyDown={onKey}
        onBlur={() => (isOpen.value = false)}
      />
      {typed.value.trim() !== filter.value && <button onClick={() => apply(typed.value)}>{t("Apply")}</button>}
      {filter.value && <button class="plain" aria-label={t("Clear the filter")} onClick={() => apply("")}>✕</button>}
      <ul id="filter-suggestions" role="listbox" aria-label={t("Suggestions")} hidden={suggested.length === 0}>
        {suggested.map((text, at) => (
          <li key={text} id={`suggestion-${at}`} role="option" aria-selected={at === chosen.value} onMouseDown={(event) => (event.preventDefault(), take(text))}>
            {text}
          </li>
        ))}
      </ul>
      {listError.value && <div id="filter-error"><Notice kind="bad">{listError.value}</Notice></div>}
    </div>
  );
}

chinese({
  "Filter": "筛选",
  "Apply": "应用",
  "Clear the filter": "清除筛选",
  "Suggestions": "建议",
});
