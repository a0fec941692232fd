import type { RunDetail } from "./wire.ts";
export function LogTab({ run }: { run: RunDetail }) {
  return <p>{run.id}</p>;
}
