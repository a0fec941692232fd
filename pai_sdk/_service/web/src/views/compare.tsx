// Two to ten runs side by side: what they are, in what they differ, how good they became.
import { useEffect } from "preact/hooks";
import { address, change, field, linkTo } from "../address.ts";
import { ask, Refusal } from "../api.ts";
import { colourOf } from "../colours.ts";
import { duration } from "../format.ts";
import { useAnswer } from "../parts/answer.ts";
import { Notice, save, Status } from "../parts/basics.tsx";
import { Pending } from "../parts/table.tsx";
import { about } from "../place.ts";
import { pick, picked, type Run } from "../runs.ts";
import { follow } from "../stream.ts";
import { chinese, t } from "../words.ts";
import { csvOf, metricRow, rowOf, valueRows, type Row } from "./compare/table.ts";
import { mainTags } from "./job/marks.ts";
import { numberOf } from "./job/values.ts";
import type { JobDetail, RunDetail } from "./job/wire.ts";
import { causeOf, secondsOf } from "./list/columns.ts";
import { formatOf } from "./list/numbers.ts";
import "./compare.css";

interface Compared {
  run: RunDetail;
  job: JobDetail | null;
}

const MOST = 10;
const MOST_TAGS = 20;
const all = field("all");

export function Compare() {
  const ids = picked.value.slice(0, MOST);
  const [runs, readAgain] = useAnswer((signal) => Promise.all(ids.map((id) => readOf(id, signal))), ids);
  useEffect(() => follow("runs", ({ event, data }) => void ((event === "resync" || ids.some((id) => data.changed?.includes(id))) && readAgain())), [ids.join()]);
  const columns = runs.value?.filter((one): one is Compared => one !== null) ?? [];
  const rows = rowsOf(columns);
  const shown = rows.filter(({ isSame, group }) => !isSame || group === "facts" || all.value);
  const heads = columns.map(({ run }) => run.name ?? run.id);
  return (
    <main class="compare">
      <div class="job-bar">
        <h1>{t("Side by side")}</h1>
        {columns.length > 0 && (
          <span class="picked">
            <label><input type="checkbox" checked={!!all.value} onChange={(event) => change({ all: event.currentTarget.checked ? "1" : "" }, { replace: true })} />{t("Show what is the same")}</label>
            <a class="button" href={linkTo({ ...address.value, view: "curves" })}>{t("Compare curves")}</a>
            <a class="button" href={linkTo({ ...address.value, view: "hparams" })}>{t("Compare hyperparameters")}</a>
            <button onClick={() => save(new Blob(["\ufeff", csvOf(["", ...heads], rows)], { type: "text/csv" }), "compare.csv")}>CSV</button>
          </span>
        )}
      </div>
      {ids.length < 2 && <Notice>{t("Pick 2 to 10 rows of the list.")} <a href={linkTo({ ...address.value, view: "" })}>{t("{Runs}")}</a></Notice>}
      {runs.value && columns.length < picked.value.length && <p class="warn">{t("{n} of {m} are shown.", { n: columns.length, m: picked.value.length })}</p>}
      {!runs.value && ids.length > 0 && <Pending answer={runs} />}
      {columns.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label={t("Side by side")}>
          <table>
            <thead>
              <tr>
                <td />
                {columns.map(({ run }, at) => (
                  <th key={run.id} scope="col">
                    <span class="job-colour" style={{ background: colourOf(run.id) }} /> <a href={linkTo({ ...address.value, view: "", run: run.id })}>{heads[at]}</a>
                    <button class="plain" aria-label={t("Leave {name} out", { name: heads[at] ?? "" })} onClick={() => pick(picked.value.filter((id) => id !== run.id))}>✕</button>
                  </th>
                ))}
              </tr>
            </thead>
            {["facts", "hparams", "labels", "metrics"].map((group) => <Group key={group} rows={shown.filter((row) => row.group === group)} columns={columns} />)}
          </table>
        </div>
      )}
    </main>
  );
}

function Group({ rows, columns }: { rows: readonly Row[]; columns: readonly Compared[] }) {
  const [first] = rows;
  if (!first) return null;
  const title = { hparams: t("Hyperparameters"), labels: t("Labels"), metrics: t("Metrics") }[first.group];
  return (
    <tbody>
      {title && <tr><th class="compare-group" scope="rowgroup" colSpan={columns.length + 1}><span>{title}</span></th></tr>}
      {rows.map(({ name, texts, isSame, isNumber, best }) => (
        <tr key={name} class={isSame ? "" : "differs"}>
          <th scope="row">{name}</th>
          {texts.map((text, at) => (
            <td key={at} class={isNumber ? "number" : ""}>
              {name === t("Status") ? <Status status={text} /> : <span title={text.length > 80 ? text : undefined}>{text || "–"}</span>}
              {best[at] && <span class="compare-best"> ★<span class="hidden-text">{t("best")}</span></span>}
            </td>
          ))}
        </tr>
      ))}
    </tbody>
  );
}

function rowsOf(columns: readonly Compared[]): Row[] {
  const facts: Record<string, (one: Compared) => string | undefined> = {
    [t("Status")]: ({ run }) => run.status,
    [t("Cause")]: ({ run, job }) => causeOf(run as unknown as Run) || job?.failure?.cause,
    [t("Duration")]: ({ run }) => spanOf(run as unknown as Run),
    [t("Cost")]: ({ run }) => [run.cost, run.currency].join(" ").trim(),
    [t("Owner")]: ({ run }) => run.owner,
    [t("Instances")]: ({ run }) => run.instance_type && `${run.instance_type}${(run.instance_count ?? 1) > 1 ? ` × ${run.instance_count}` : ""}`,
    [t("Image")]: ({ job }) => job?.summary.image,
    [t("Command")]: ({ job }) => job?.summary.command,
  };
  const rows = Object.entries(facts).map(([name, read]) => rowOf("facts", name, columns.map((one) => read(one) ?? "")));
  const tags = [...new Set(columns.flatMap(({ run }) => mainTags(run, MOST_TAGS)))].slice(0, MOST_TAGS);
  const metrics = tags.flatMap((tag) => {
    const own = columns.map(({ run }) => run.tags.find((one) => one.tag === tag));
    const values = (["last", "min", "max"] as const).map((fact) => [fact, own.map((one) => numberOf(fact === "last" ? one?.last?.value : one?.[fact]))] as const);
    const write = formatOf(values.flatMap(([, of]) => of.filter((value): value is number => value !== null)));
    return values.map(([fact, of]) => metricRow(tag, fact, of, write));
  });
  return [
    ...rows.filter(({ texts }) => texts.some(Boolean)),
    ...valueRows("hparams", columns.map(({ run }) => run.hparams ?? {})),
    ...valueRows("labels", columns.map(({ run }) => run.labels ?? {})),
    ...metrics,
  ];
}

function spanOf(run: Run): string {
  const seconds = secondsOf(run);
  return seconds === undefined ? "" : duration(seconds);
}

/** A run with its job; null where it is not there. */
async function readOf(id: string, signal: AbortSignal): Promise<Compared | null> {
  const none = (error: unknown): null => {
    if (error instanceof Refusal && error.status === 404) return null;
    throw error;
  };
  const [run, job] = await Promise.all([
    ask<RunDetail>("run", { run: id, signal }).catch(none),
    about.value?.kind === "folder" ? null : ask<JobDetail>("job", { run: id, signal }).catch(none),
  ]);
  return run && { run, job };
}

chinese({
  "Side by side": "并排比较",
  "Show what is the same": "显示相同的项",
  "Pick 2 to 10 rows of the list.": "在列表中选择 2 至 10 行。",
  "{n} of {m} are shown.": "显示 {m} 个中的 {n} 个。",
  "Leave {name} out": "移除 {name}",
  "Labels": "标签",
  "Metrics": "指标",
  "best": "最佳",
});
