// What users record about a job: a star, which is their own; tags, a note and the archive, which all see.
import { useEffect, useState } from "preact/hooks";
import { ask } from "../api.ts";
import { chinese, t } from "../words.ts";

export interface Annotations {
  star: boolean;
  tags: string[];
  note: string;
  archived: boolean;
  v: number; // of the note
}

export type Changes = Partial<Annotations> & { add_tags?: string[]; remove_tags?: string[] };

export function annotate(run: string, body: Changes): Promise<Annotations> {
  return ask<Annotations>("annotate", { run, body });
}

/** A button that puts a star on a job, or takes it away; it shows at once what was chosen. */
export function Star({ id, name, isOn, tab }: { id: string; name: string; isOn: boolean; tab?: number }) {
  const [wanted, setWanted] = useState<boolean | undefined>();
  useEffect(() => setWanted(undefined), [isOn]);
  const star = wanted ?? isOn;
  const label = t("Star {name}", { name });
  const toggle = (): void => {
    setWanted(!star);
    annotate(id, { star: !star }).catch(() => setWanted(undefined));
  };
  return (
    <button class="plain star" tabIndex={tab} aria-pressed={star} aria-label={label} title={label} onClick={toggle}>{star ? "★" : "☆"}</button>
  );
}

/** A field for a new tag; Enter adds it. */
export function NewTag({ add }: { add: (tag: string) => void }) {
  const [tag, setTag] = useState("");
  const submit = (event: Event): void => {
    event.preventDefault();
    if (tag.trim()) add(tag.trim());
    setTag("");
  };
  return (
    <form onSubmit={submit}>
      <input aria-label={t("New tag")} placeholder={t("New tag")} maxLength={64} size={14} value={tag} onInput={(event) => setTag(event.currentTarget.value)} />
      {tag && <button>{t("Add")}</button>}
    </form>
  );
}

chinese({
  "New tag": "新标记",
  "Add": "添加",
  "Star {name}": "收藏 {name}",
});
