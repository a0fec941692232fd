// What this page is of: a service with jobs, or a folder of runs.
import { signal } from "@preact/signals";

export type Can = "stop" | "rerun" | "delete" | "files" | "trace" | "usage" | "media" | "pipelines" | "annotate" | "others" | "admin";

export interface About {
  kind: "service" | "folder";
  place: string;
  version: string;
  command: string;
  user: string; // who is signed in; empty for the service's own key
  right: "read" | "submit" | "admin";
  workspaces: string[];
  session: string; // Python that opens the service; empty for a folder
  can: Can[];
}

export const about = signal<About | undefined>(undefined);

export function can(what: Can): boolean {
  return about.value?.can.includes(what) ?? false;
}
