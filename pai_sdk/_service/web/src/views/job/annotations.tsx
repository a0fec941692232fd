// The tags and the note of a job, and its archive. Users who may only see the job see them as text.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { linkTo } from "../../address.ts";
import { Refusal } from "../../api.ts";
import { annotate, NewTag, type Annotations, type Changes } from "../../parts/annotations.tsx";
import { Notice } from "../../parts/basics.tsx";
import { wordsOf } from "../../parts/dialog.tsx";
import { about } from "../../place.ts";
import { chinese, t } from "../../words.ts";
import { word } from "./job_head.tsx";

interface Draft {
  note: string;
  v: number; // of the note that it replaces
  theirs?: string; // the note that another user has saved meanwhile
}

function storedDraft(place: string): Draft | undefined {
  return JSON.parse(sessionStorage.getItem(place) ?? "null") ?? undefined;
}

export function Annotated({ id, annotations, canChange }: { id: string; annotations: Annotations; canChange: boolean }) {
  // What the service responds to a change is shown at once; the job is read again a moment later.
  const [now, setNow] = useState(annotations);
  useEffect(() => setNow(annotations), [JSON.stringify(annotations)]);
  // A draft outlives its page, in this tab and for this user.
  const place = `pai-ui-note ${about.value?.user} ${id}`;
  const [draft, setDraft] = useState(() => storedDraft(place));
  useLayoutEffect(() => {
    if (draft && draft.note !== now.note) sessionStorage.setItem(place, JSON.stringify(draft));
    else sessionStorage.removeItem(place);
  }, [draft]);
  const [refused, setRefused] = useState("");
  const change = async (changes: Changes): Promise<Annotations | undefined> => {
    setRefused("");
    try {
      const saved = await annotate(id, changes);
      setNow(saved);
      return saved;
    } catch (error) {
      const latest = (error as Refusal).code === "NOTE_CHANGED" && (await annotate(id, {}).catch(() => undefined));
      if (latest) {
        setNow(latest);
        setDraft((mine) => mine && { ...mine, v: latest.v, theirs: latest.note });
      } else setRefused(wordsOf(error));
      return undefined;
    }
  };
  const box = useRef<HTMLTextAreaElement>(null);
  const isRestored = useRef(draft !== undefined);
  useEffect(() => {
    if (!isRestored.current) box.current?.focus();
    isRestored.current = false;
  }, [draft === undefined]);
  const save = async (event: Event): Promise<void> => {
    event.preventDefault();
    const sent = draft?.note;
    const saved = draft && (await change({ note: draft.note, v: draft.v }));
    if (!saved) return;
    // The job may have been left meanwhile, or more may have been written.
    if (storedDraft(place)?.note === sent) sessionStorage.removeItem(place);
    setDraft((mine) => (mine && mine.note !== sent ? { note: mine.note, v: saved.v } : undefined));
  };
  if (!canChange && !now.note && now.tags.length === 0) return null;
  return (
    <div class="annotated">
      {now.tags.map((name) => (
        <span key={name} class="job-label">
          <a href={linkTo({ q: `tags=${word(name)}` })}>{name}</a>
          {canChange && <button class="plain" aria-label={t("Remove the tag {name}", { name })} onClick={() => void change({ remove_tags: [name] })}>✕</button>}
        </span>
      ))}
      {canChange && <NewTag add={(tag) => void change({ add_tags: [tag] })} />}
      {canChange && !draft && <button class="plain" onClick={() => setDraft({ note: now.note, v: now.v })}>{now.note ? t("Edit the note") : t("Add a note")}</button>}
      {refused && <Notice kind="bad">{refused}</Notice>}
      {draft ? (
        <form class="note-form" onSubmit={(event) => void save(event)}>
          {draft.theirs !== undefined && (
            <Notice kind="bad">
              {t("Another user has changed the note meanwhile. It is now as follows; Save replaces it by yours.")}
              <p class="note">{draft.theirs}</p>
            </Notice>
          )}
          <textarea aria-label={t("Note")} rows={5} maxLength={10_000} ref={box} value={draft.note} onInput={(event) => setDraft({ ...draft, note: event.currentTarget.value })} />
          <div class="buttons">
            <button class="main">{t("Save")}</button>
            <button type="button" onClick={() => setDraft(undefined)}>{t("Cancel")}</button>
          </div>
        </form>
      ) : (
        now.note && <p class="note">{now.note}</p>
      )}
    </div>
  );
}

export function Archive({ id, isArchived }: { id: string; isArchived: boolean }) {
  const [wanted, setWanted] = useState(isArchived);
  useEffect(() => setWanted(isArchived), [isArchived]);
  const toggle = (): void => {
    setWanted(!wanted);
    annotate(id, { archived: !wanted }).catch(() => setWanted(wanted));
  };
  return <button title={t("Archived jobs are in the list with the filter archived=true only.")} onClick={toggle}>{wanted ? t("Unarchive") : t("Archive")}</button>;
}

chinese({
  "Remove the tag {name}": "删除标记 {name}",
  "Edit the note": "编辑备注",
  "Add a note": "添加备注",
  "Another user has changed the note meanwhile. It is now as follows; Save replaces it by yours.": "另一位用户已更改备注。现在的内容如下；保存会用你的内容替换它。",
  "Note": "备注",
  "Save": "保存",
  "Cancel": "取消",
  "Archived jobs are in the list with the filter archived=true only.": "已归档的作业只在使用筛选 archived=true 时出现在列表中。",
  "Unarchive": "取消归档",
  "Archive": "归档",
});
