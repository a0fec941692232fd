// Menus above the list: which columns it has, and views that were saved under a name.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { address, change, linkTo, readFields, writeFields } from "../../address.ts";
import { copyText } from "../../parts/basics.tsx";
import { about } from "../../place.ts";
import { list } from "../../runs.ts";
import { chinese, t } from "../../words.ts";
import { FACTS, keysOf, splitKey, titleOf } from "./columns.ts";

const MOST_KEYS = 200;

/** A button that opens a box below it; Escape and a click elsewhere close it. */
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
  return (
    <details class="menu" ref={box}>
      <summary class="button" aria-label={label} title={label}>{title}</summary>
      <div class="menu-box">{children}</div>
    </details>
  );
}

export function ColumnsMenu({ keys }: { keys: readonly string[] }) {
  const search = useSignal("");
  const choose = (wanted: readonly string[]): void => change({ cols: wanted.map(encodeURIComponent).join(",") || "-" }, { replace: true });
  const all = list.value ? keysOf(list.value) : [];
  const fitting = all.filter((key) => key.toLowerCase().includes(search.value.toLowerCase()));
  return (
    <Menu title={t("Columns")}>
      <input aria-label={t("Search columns")} placeholder={t("Search columns")} value={search.value} onInput={(event) => (search.value = event.currentTarget.value)} />
      <button onClick={() => change({ cols: "" }, { replace: true })}>{t("The usual ones")}</button>
      <ul class="columns">
        {fitting.slice(0, MOST_KEYS).map((key) => {
          const [group] = splitKey(key);
          const variants = group === "metrics" ? FACTS.map((fact) => (fact === "last" ? key : `${key}.${fact}`)) : [key];
          return (
            <li key={key}>
              <span><span class="soft">{group === "metrics" || !group ? "" : `${group}.`}</span>{titleOf(key)}</span>
              {variants.map((variant, at) => (
                <label key={variant}>
                  <input
                    type="checkbox"
                    aria-label={`${titleOf(key)} ${variants.length > 1 ? FACTS[at] : ""}`}
                    checked={keys.includes(variant)}
                    onChange={() => choose(keys.includes(variant) ? keys.filter((one) => one !== variant) : [...keys, variant])}
                  />
                  {variants.length > 1 && <span class="soft">{FACTS[at]}</span>}
                </label>
              ))}
            </li>
          );
        })}
      </ul>
      {fitting.length > MOST_KEYS && <p class="soft">{t("{n} more; search for them", { n: fitting.length - MOST_KEYS })}</p>}
    </Menu>
  );
}

type Saved = Record<string, string>;

/** Saved views are kept in this browser, for this place; each is an address. */
export function ViewsMenu() {
  const place = `pai-ui-views ${about.value?.place}`;
  const saved = useSignal<Saved>(savedIn(place));
  const name = useSignal("");
  const keep = (views: Saved): void => {
    saved.value = views;
    localStorage.setItem(place, JSON.stringify(views));
  };
  const save = (event: Event): void => {
    event.preventDefault();
    if (name.value.trim()) keep({ ...saved.value, [name.value.trim()]: writeFields(address.value) });
    name.value = "";
  };
  return (
    <Menu title={t("Views")}>
      <form onSubmit={save}>
        <input aria-label={t("Name of this view")} placeholder={t("Name of this view")} value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} />
        <button>{t("Save")}</button>
      </form>
      <ul>
        {Object.entries(saved.value).map(([title, fields]) => (
          <li key={title}>
            <a href={linkTo(readFields(fields))}>{title}</a>
            <button class="plain" aria-label={t("Delete the view {name}", { name: title })} onClick={() => keep(without(saved.value, title))}>✕</button>
          </li>
        ))}
      </ul>
      <button onClick={() => void copyText(location.href)}>{t("Copy the link to this view")}</button>
    </Menu>
  );
}

function savedIn(place: string): Saved {
  try {
    return JSON.parse(localStorage.getItem(place) ?? "{}") as Saved;
  } catch {
    return {};
  }
}

function without(views: Saved, name: string): Saved {
  const { [name]: _, ...rest } = views;
  return rest;
}

chinese({
  "Columns": "列",
  "Search columns": "搜索列",
  "The usual ones": "默认列",
  "{n} more; search for them": "还有 {n} 个，请搜索",
  "Name of this view": "视图名称",
  "Save": "保存",
  "Delete the view {name}": "删除视图 {name}",
  "Copy the link to this view": "复制此视图的链接",
});
