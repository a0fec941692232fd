// A button by which one is told when jobs end, and what was told.
import { linkTo } from "../address.ts";
import { dismiss, state, watch } from "../told.ts";
import { chinese, t } from "../words.ts";

export function Bell({ jobs }: { jobs: readonly { id: string; name: string }[] }) {
  const isOn = jobs.length > 0 && jobs.every(({ id }) => id in state.value.watched);
  return (
    <button aria-pressed={isOn} disabled={jobs.length === 0} onClick={() => watch(jobs, !isOn)}>
      {t("Tell me when it ends")}
    </button>
  );
}

/** What was told and is not read yet: links to the jobs. */
export function ToldJobs() {
  return (
    <span class="told" role="status" aria-label={t("What has ended")}>
      {state.value.told.map(({ id, text }) => (
        <span key={id} class="notice">
          <a href={linkTo({ run: id })}>{text}</a>
          <button class="plain" aria-label={t("Dismiss {text}", { text })} onClick={() => dismiss(id)}>✕</button>
        </span>
      ))}
    </span>
  );
}

chinese({
  "Tell me when it ends": "结束时告诉我",
  "What has ended": "已结束的作业",
  "Dismiss {text}": "不再显示 {text}",
});
