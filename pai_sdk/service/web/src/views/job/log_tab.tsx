import type { JobDetail, RunDetail } from "./wire.ts";
export function LogTab({ run }: { run: RunDetail; job: JobDetail | null }) {
  return <p>{run.id}</p>;
}
