// How many jobs have which status, as buttons that filter; and one for the jobs of the user.
import { change } from "../../address.ts";
import { count } from "../../format.ts";
import { Status } from "../../parts/basics.tsx";
import { about } from "../../place.ts";
import { filter, type RunList } from "../../runs.ts";
import { chinese, t } from "../../words.ts";
import { valuesIn, withValues } from "./conditions.ts";

const FIRST = ["Running", "Queuing", "Submitted", "Creating", "Created", "Initializing"];
const LAST = ["Failed", "InitializeFailed", "CreateFailed", "Succeed", "Terminated", "Unknown"];
const SYNONYMS: Readonly<Record<string, string>> = { succeeded: "succeed", stopped: "terminated" };

export function Chips({ found }: { found: RunList }) {
  const asked = valuesIn(filter.value, "status").map((status) => SYNONYMS[status.toLowerCase()] ?? status.toLowerCase());
  const names = Object.keys(found.statuses).sort((one, other) => rank(one) - rank(other));
  const user = about.value?.user;
  const mine = valuesIn(filter.value, "owner");
  const isMine = mine.length === 1 && mine[0] === user;
  const hasMine = user && (mine.length > 0 || found.runs.some(({ owner }) => (owner ?? "") !== user));
  const toggle = (key: string, values: readonly string[]): void => change({ q: withValues(filter.value, key, values) });
  if (!hasMine && names.length < 2 && asked.length === 0) return null;
  return (
    <div class="chips" role="group" aria-label={t("Filter by status")}>
      {hasMine && <button aria-pressed={isMine} onClick={() => toggle("owner", isMine ? [] : [user])}>{t("Mine")}</button>}
      {names.map((name) => {
        const isAsked = asked.includes(name.toLowerCase());
        const others = names.filter((one) => one !== name && asked.includes(one.toLowerCase()));
        return (
          <button key={name} aria-pressed={isAsked} onClick={() => toggle("status", isAsked ? others : [...others, name])}>
            <Status status={name} /> <b>{count(found.statuses[name] ?? 0)}</b>
          </button>
        );
      })}
    </div>
  );
}

/** What runs and waits comes first, then what failed. */
function rank(status: string): number {
  return FIRST.includes(status) ? FIRST.indexOf(status) : FIRST.length + (LAST.includes(status) ? 1 + LAST.indexOf(status) : 0);
}

chinese({
  "Filter by status": "按状态筛选",
  "Mine": "我的",
});
