// A dialog over the page: the rest cannot be reached until it is closed, and the focus goes back to where it was.
import { useEffect, useId, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { Refusal } from "../api.ts";
import { Notice } from "./basics.tsx";
import { chinese, t } from "../words.ts";

export function Dialog({ title, close, children }: { title: string; close: () => void; children: ComponentChildren }) {
  const id = useId();
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => before instanceof HTMLElement && before.focus();
  }, []);
  return (
    <dialog ref={dialog} class="dialog" aria-labelledby={id} onClose={close}>
      <h2 id={id}>{title}</h2>
      {children}
    </dialog>
  );
}

interface Question {
  title: string;
  text: string;
  yes: string;
  act: () => Promise<unknown>;
  close: () => void;
}

/** Asks before something is done that cannot be undone; a refusal is shown in the service's words. */
export function Confirm({ title, text, yes, act, close }: Question) {
  const [isBusy, setBusy] = useState(false);
  const [refused, setRefused] = useState("");
  const confirmed = async (): Promise<void> => {
    setBusy(true);
    try {
      await act();
      close();
    } catch (error) {
      setRefused(wordsOf(error));
      setBusy(false);
    }
  };
  return (
    <Dialog title={title} close={close}>
      <p>{text}</p>
      {refused && <Notice kind="bad">{refused}</Notice>}
      <div class="buttons">
        <button class="danger" disabled={isBusy} onClick={() => void confirmed()}>{yes}</button>
        <button onClick={close} autofocus>{t("Cancel")}</button>
      </div>
    </Dialog>
  );
}

/** What to say about an error: the service's own words, or that it was not reached. */
export function wordsOf(error: unknown): string {
  return error instanceof Refusal ? error.message : t("The service does not respond. Try again.");
}

chinese({
  "Cancel": "取消",
  "The service does not respond. Try again.": "服务没有响应，请重试。",
});
