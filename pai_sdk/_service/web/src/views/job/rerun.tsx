// Re-run with changes: a form of the fields of the job's request. Only what was changed is sent.
import { useId, useRef, useState } from "preact/hooks";
import { go } from "../../address.ts";
import { ask, Refusal } from "../../api.ts";
import { useAnswer } from "../../parts/answer.ts";
import { Notice } from "../../parts/basics.tsx";
import { Dialog, wordsOf } from "../../parts/dialog.tsx";
import { Pending } from "../../parts/table.tsx";
import { chinese, t } from "../../words.ts";
import { changesOf, entered, nameWith, newToken, problemsByField, twice, type Entered, type Pair } from "./rerun_changes.ts";
import type { FormValue, RerunForm } from "./wire.ts";

export function Rerun({ id, close }: { id: string; close: () => void }) {
  const [form] = useAnswer((signal) => ask<RerunForm>("rerunForm", { run: id, signal }), [id]);
  return (
    <Dialog title={t("Re-run with changes")} close={close}>
      {form.value ? <Form id={id} fields={form.value.fields} short={form.value.short_names} close={close} /> : <Pending answer={form} />}
      {!form.value && <div class="buttons"><button onClick={close}>{t("Cancel")}</button></div>}
    </Dialog>
  );
}

interface FormOf {
  id: string;
  fields: Record<string, FormValue>;
  short: Record<string, string>;
  close: () => void;
}

function Form({ id, fields, short, close }: FormOf) {
  const [typed, setForm] = useState<Record<string, Entered>>(() => Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, entered(value)])));
  const [isNamed, setNamed] = useState(false);
  const rows = typed.hyperparameters;
  // Until somebody writes another name, it follows the hyperparameters.
  const name = isNamed || !Array.isArray(rows) ? typed.name : nameWith(String(fields.name), fields.hyperparameters as Record<string, FormValue>, rows, short);
  const form: Record<string, Entered> = { ...typed, name: name ?? "" };
  const [token] = useState(newToken);
  const [problems, setProblems] = useState<Record<string, string[]>>({});
  const [isBusy, setBusy] = useState(false);
  const shown = useRef<HTMLFormElement>(null);
  const changes = changesOf(fields, form);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    const doubled = Object.entries(form).flatMap(([name, value]) => (Array.isArray(value) && twice(value).length > 0 ? [[name, twice(value)] as const] : []));
    if (doubled.length > 0) {
      return setProblems(Object.fromEntries(doubled.map(([name, names]) => [name, names.map((one) => t("{name} is there more than once.", { name: one }))])));
    }
    setBusy(true);
    setProblems({});
    try {
      const made = await ask<{ id: string }>("rerun", { run: id, body: { changes, token } });
      close();
      go({ run: made.id });
    } catch (error) {
      setProblems(error instanceof Refusal ? problemsByField(error.message, Object.keys(fields)) : { "": [wordsOf(error)] });
      setBusy(false);
      requestAnimationFrame(() => shown.current?.querySelector<HTMLElement>("[aria-invalid], [role=alert]")?.scrollIntoView({ block: "center" }));
    }
  };
  const edit = (name: string, value: Entered): void => {
    if (name === "name") setNamed(true);
    setForm((before) => ({ ...before, [name]: value }));
  };
  const changed = Object.keys(changes).filter((name) => name !== "name" || isNamed).length;
  return (
    <form ref={shown} class="rerun" onSubmit={(event) => void submit(event)}>
      {Object.entries(fields).map(([name, before]) => (
        <Field key={name} name={name} before={before} value={form[name] ?? ""} isChanged={name in changes} problems={problems[name] ?? []} edit={(value) => edit(name, value)} />
      ))}
      {problems[""]?.map((text) => <Notice key={text} kind="bad">{text}</Notice>)}
      <div class="buttons">
        <button class="main" disabled={isBusy}>{changed > 0 ? t("Run with {n} {n|change|changes}", { n: changed }) : t("Run it again")}</button>
        <button type="button" onClick={close}>{t("Cancel")}</button>
      </div>
    </form>
  );
}

interface FieldOf {
  name: string;
  before: FormValue;
  value: Entered;
  isChanged: boolean;
  problems: string[];
  edit: (value: Entered) => void;
}

function Field({ name, before, value, isChanged, problems, edit }: FieldOf) {
  const id = useId();
  const said = problems.length > 0 ? { "aria-invalid": true, "aria-describedby": `${id}-said` } : {};
  const title = `${titleOf(name)}${isChanged ? ` · ${t("changed here")}` : ""}`;
  return (
    <div class={isChanged ? "field changed" : "field"}>
      {Array.isArray(value) ? (
        <fieldset {...said}>
          <legend>{title}</legend>
          <Pairs rows={value} edit={edit} />
        </fieldset>
      ) : (
        <>
          <label for={id}>{title}</label>
          {typeof value === "boolean" ? (
            <input id={id} type="checkbox" checked={value} onChange={(event) => edit(event.currentTarget.checked)} {...said} />
          ) : name === "command" || value.includes("\n") ? (
            <textarea id={id} class="mono" rows={4} spellcheck={false} value={value} onInput={(event) => edit(event.currentTarget.value)} {...said} />
          ) : (
            <input id={id} inputMode={typeof before === "number" ? "decimal" : "text"} spellcheck={false} value={value} onInput={(event) => edit(event.currentTarget.value)} {...said} />
          )}
        </>
      )}
      <div id={`${id}-said`}>{problems.map((text) => <p key={text} class="bad" role="alert">{text}</p>)}</div>
    </div>
  );
}

function Pairs({ rows, edit }: { rows: Pair[]; edit: (rows: Pair[]) => void }) {
  const put = (at: number, part: Partial<Pair>): void => edit(rows.map((row, place) => (place === at ? { ...row, ...part } : row)));
  return (
    <>
      {rows.map((row, at) => (
        <div class="pair" key={at}>
          <input class="mono" aria-label={t("Name")} spellcheck={false} value={row.name} onInput={(event) => put(at, { name: event.currentTarget.value })} />
          <input class="mono" aria-label={t("Value of {name}", { name: row.name })} spellcheck={false} value={row.value} onInput={(event) => put(at, { value: event.currentTarget.value })} />
          <button type="button" class="plain" aria-label={t("Remove {name}", { name: row.name })} onClick={() => edit(rows.filter((_, place) => place !== at))}>✕</button>
        </div>
      ))}
      <button type="button" onClick={() => edit([...rows, { name: "", value: "" }])}>{t("Add")}</button>
    </>
  );
}

function titleOf(name: string): string {
  const titles: Record<string, string> = {
    name: t("Name"),
    image: t("Image"),
    command: t("Command"),
    instance_type: t("Instance type"),
    instance_count: t("Instances"),
    hyperparameters: t("Hyperparameters"),
    environment: t("Environment"),
    labels: t("Labels"),
    max_runtime_s: t("Longest run in seconds"),
  };
  return titles[name] ?? name;
}

chinese({
  "Re-run with changes": "修改后重新运行",
  "{name} is there more than once.": "{name} 重复出现。",
  "Run with {n} {n|change|changes}": "以 {n} 处修改运行",
  "Run it again": "再次运行",
  "changed here": "已修改",
  "Value of {name}": "{name} 的值",
  "Remove {name}": "移除 {name}",
  "Add": "添加",
  "Image": "镜像",
  "Command": "命令",
  "Instance type": "实例规格",
  "Instances": "实例",
  "Environment": "环境变量",
  "Labels": "标签",
  "Longest run in seconds": "最长运行时间（秒）",
});
