// Saved views: addresses of the page under names. A service stores them for each user, who can share them; for a
// folder, the browser does.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { linkTo, readFields, viewFields, writeFields } from "../../address.ts";
import { ask, send } from "../../api.ts";
import { Notice, useCopy } from "../../parts/basics.tsx";
import { wordsOf } from "../../parts/dialog.tsx";
import { Menu } from "../../parts/menu.tsx";
import { about } from "../../place.ts";
import { chinese, t } from "../../words.ts";

interface View {
  name: string;
  fields: string;
  shared: boolean;
  owner: string;
  mine: boolean;
}

export function ViewsMenu() {
  const isService = about.value?.kind === "service";
  const place = `pai-ui-views ${about.value?.place}`;
  const views = useSignal<View[]>([]);
  const local = useSignal<Record<string, string>>(storedIn(place));
  const name = useSignal("");
  const isShared = useSignal(false);
  const refused = useSignal("");
  const [isCopied, copy] = useCopy();
  const store = (saved: Record<string, string>): void => {
    local.value = saved;
    localStorage.setItem(place, JSON.stringify(saved));
  };
  const tried = async (act: () => Promise<unknown>): Promise<void> => {
    try {
      refused.value = "";
      await act();
      views.value = (await ask<{ views: View[] }>("views")).views;
    } catch (error) {
      refused.value = wordsOf(error);
    }
  };
  useEffect(() => void (isService && tried(async () => undefined)), []);
  const put = (view: string, fields: string, shared: boolean): Promise<unknown> => send("saveView", { run: view, body: { fields, shared } });
  const shown: View[] = isService ? views.value : Object.entries(local.value).map(([view, fields]) => ({ name: view, fields, shared: false, owner: "", mine: true }));
  const save = (event: Event): void => {
    event.preventDefault();
    const view = name.value.trim();
    if (!view) return;
    const fields = writeFields(viewFields());
    if (isService) void tried(() => put(view, fields, isShared.value));
    else store({ ...local.value, [view]: fields });
    name.value = "";
  };
  const remove = ({ name: view }: View): void => {
    if (isService) return void tried(() => send("deleteView", { run: view }));
    const { [view]: _, ...rest } = local.value;
    store(rest);
  };
  // Views that this browser has stored for a service are those of earlier releases.
  const move = (): Promise<void> =>
    tried(async () => {
      for (const [view, fields] of Object.entries(local.value)) {
        const isTaken = views.value.some((other) => other.mine && other.name === view);
        await put(isTaken ? `${view} (2)` : view, writeFields(viewFields(readFields(fields))), false);
        const { [view]: _, ...rest } = local.value;
        store(rest);
      }
    });
  return (
    <Menu title={t("Views")}>
      <form onSubmit={save}>
        <input aria-label={t("Name of this view")} placeholder={t("Name of this view")} maxLength={100} value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} />
        <button>{t("Save")}</button>
        {isService && about.value?.can.includes("annotate") && (
          <label><input type="checkbox" checked={isShared.value} onChange={() => (isShared.value = !isShared.value)} />{t("for all in my workspaces")}</label>
        )}
      </form>
      {refused.value && <Notice kind="bad">{refused.value}</Notice>}
      <ul>
        {isService && <li><a href={linkTo({ q: "star=true" })}>{t("Starred")}</a><a href={linkTo({ q: "archived=true" })}>{t("Archived")}</a></li>}
        {shown.map((view) => (
          <li key={`${view.owner} ${view.name}`}>
            <a href={linkTo(viewFields(readFields(view.fields)))}>{view.name}</a>
            {view.shared && <span class="soft">{view.mine ? t("shared") : t("by {owner}", { owner: view.owner || t("the service") })}</span>}
            {view.mine && <button class="plain" aria-label={t("Delete the view {name}", { name: view.name })} onClick={() => remove(view)}>✕</button>}
          </li>
        ))}
      </ul>
      {isService && Object.keys(local.value).length > 0 && <button onClick={() => void move()}>{t("Move {n} {n|view|views} of this browser to the service", { n: Object.keys(local.value).length })}</button>}
      <button onClick={() => copy(new URL(linkTo(viewFields()), location.href).href)}>{isCopied ? t("Copied") : t("Copy the link to this view")}</button>
    </Menu>
  );
}

function storedIn(place: string): Record<string, string> {
  try {
    return JSON.parse(localStorage.getItem(place) ?? "{}") as Record<string, string>;
  } catch {
    return {};
  }
}

chinese({
  "Name of this view": "视图名称",
  "Save": "保存",
  "for all in my workspaces": "供我的工作空间的所有成员使用",
  "shared": "已共享",
  "Starred": "已收藏",
  "Archived": "已归档",
  "by {owner}": "所有者 {owner}",
  "the service": "服务",
  "Delete the view {name}": "删除视图 {name}",
  "Move {n} {n|view|views} of this browser to the service": "将此浏览器中的 {n} 个视图移到服务",
  "Copied": "已复制",
  "Copy the link to this view": "复制此视图的链接",
});
