// Downloads by an address that works once: the browser saves what comes, however large, and the page stays.
import { ask } from "../../api.ts";

interface Content {
  kind: "file" | "folder" | "log";
  path?: string;
  instance?: string;
  gzip?: boolean;
}

export async function download(run: string, content: Content): Promise<void> {
  const { url } = await ask<{ url: string }>("download", { run, body: content });
  const { href, origin } = new URL(url, location.href);
  if (origin !== location.origin) return;
  const link = document.createElement("a");
  link.href = href;
  link.download = "";
  link.click();
}
