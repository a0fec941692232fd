// Views that are loaded when they are shown first.
import { signal } from "@preact/signals";
import type { FunctionComponent } from "preact";

export interface Loaded<Props> extends FunctionComponent<Props> {
  load(): void;
}

/** A component whose script comes by `read`; a try that fails is made again. */
export function loaded<Props extends object>(read: () => Promise<FunctionComponent<Props>>): Loaded<Props> {
  const found = signal<FunctionComponent<Props> | undefined>(undefined);
  let isReading = false;
  const load = (): void => {
    if (found.value || isReading) return;
    isReading = true;
    read().then(
      (component) => (found.value = component),
      () => setTimeout(load, 1000),
    ).finally(() => (isReading = false));
  };
  const Shown = (props: Props) => {
    const Component = found.value;
    if (Component) return <Component {...props} />;
    load();
    return <p class="soft opening" aria-live="polite">…</p>;
  };
  return Object.assign(Shown, { load });
}
