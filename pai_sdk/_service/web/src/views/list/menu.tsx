// Menus above the list, and the one of its columns.
import { useSignal } from "@preact/signals";
import { change } from "../../address.ts";
import { Menu } from "../../parts/menu.tsx";
import { list } from "../../runs.ts";
import { chinese, t } from "../../words.ts";
import { FACTS, keysOf, splitKey, titleOf } from "./columns.ts";

const MOST_KEYS = 200;

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

chinese({
  "Columns": "列",
  "Search columns": "搜索列",
  "The usual ones": "默认列",
  "{n} more; search for them": "还有 {n} 个，请搜索",
});
