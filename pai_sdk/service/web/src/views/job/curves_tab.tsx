import type { RunDetail } from "./wire.ts";
export function CurvesTab({ run }: { run: RunDetail }) {
  return <p>{run.id}</p>;
}
