// Stars, tags and the archive for all picked jobs at once.
import { annotate, NewTag } from "../../parts/annotations.tsx";
import { can } from "../../place.ts";
import { list, picked } from "../../runs.ts";
import { chinese, t } from "../../words.ts";
import { Menu } from "../../parts/menu.tsx";

/** `each` calls for each picked job, or each of them that this user may change, and shows which ones failed. */
export function AnnotatePicked({ each, isBusy }: { each: (call: (run: string) => Promise<unknown>, isChange?: boolean) => void; isBusy: boolean }) {
  const runs = list.value?.runs.filter((run) => picked.value.includes(run.id)) ?? [];
  const all = (isSet: (run: (typeof runs)[number]) => boolean | undefined): boolean => runs.length > 0 && runs.every(isSet);
  const [star, archived] = [!all((run) => run.star), !all((run) => run.archived)];
  return (
    <>
      <button disabled={isBusy} onClick={() => each((run) => annotate(run, { star }))}>{star ? t("Star") : t("Unstar")}</button>
      {can("annotate") && (
        <>
          <Menu title={t("Tag")}>
            <NewTag add={(tag) => each((run) => annotate(run, { add_tags: [tag] }), true)} />
          </Menu>
          <button disabled={isBusy} onClick={() => each((run) => annotate(run, { archived }), true)}>{archived ? t("Archive") : t("Unarchive")}</button>
        </>
      )}
    </>
  );
}

chinese({
  "Star": "收藏",
  "Unstar": "取消收藏",
  "Tag": "标记",
  "Archive": "归档",
  "Unarchive": "取消归档",
});
