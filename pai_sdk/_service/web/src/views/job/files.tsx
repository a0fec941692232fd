// What a job has written: outputs, checkpoints, logs; folder by folder, each file to be downloaded.
import { useState } from "preact/hooks";
import { address, field, linkTo } from "../../address.ts";
import { ask } from "../../api.ts";
import { bytes, moment } from "../../format.ts";
import { Age, copyText, Notice } from "../../parts/basics.tsx";
import { chinese, t } from "../../words.ts";
import { useAnswer } from "./answer.ts";
import { wordsOf } from "./dialog.tsx";
import { Pending, Table } from "./table.tsx";
import type { Entry, Files as FilesOf } from "./wire.ts";

const path = field("path");

export function Files({ id }: { id: string }) {
  const folder = path.value.replace(/\/+$/, "");
  const [files] = useAnswer((signal) => ask<FilesOf>("files", { run: id, query: { path: folder }, signal }), [id, folder]);
  const [refused, setRefused] = useState("");
  const [copied, setCopied] = useState("");
  const download = async (file: string): Promise<void> => {
    setRefused("");
    try {
      follow((await ask<{ url: string }>("download", { run: id, body: { path: file } })).url);
    } catch (error) {
      setRefused(wordsOf(error));
    }
  };
  const copy = async (uri: string): Promise<void> => {
    await copyText(uri);
    setCopied(uri);
  };
  const base = files.value?.uri?.replace(/\/+$/, "");
  return (
    <div class="files">
      <div class="job-bar">
        <Breadcrumb folder={folder} />
        {base && <button class="plain" aria-live="polite" onClick={() => void copy(base)}>{copied === base ? t("Copied") : t("Copy the URI")}</button>}
      </div>
      {refused && <Notice kind="bad">{refused}</Notice>}
      {!files.value && <Pending answer={files} />}
      {files.value && files.value.entries.length === 0 && <p class="soft">{t("Nothing here yet.")}</p>}
      {files.value && files.value.entries.length > 0 && (
        <Table name={t("Files")} heads={[t("Name"), [t("Size")], t("Changed")]} kind="job-wide">
          {files.value.entries.map((entry) => <Row key={entry.name} entry={entry} folder={folder} download={download} />)}
        </Table>
      )}
      {files.value?.truncated && <p class="warn">{t("The folder has more entries than are shown here.")}</p>}
    </div>
  );
}

function Row({ entry, folder, download }: { entry: Entry; folder: string; download: (file: string) => Promise<void> }) {
  const place = folder ? `${folder}/${entry.name}` : entry.name;
  return (
    <tr>
      <td class="name">
        {entry.is_folder ? (
          <a href={linkTo({ ...address.value, path: place })}><span aria-hidden="true">▸ </span>{entry.name}/</a>
        ) : (
          <button class="job-link" title={t("Download")} onClick={() => void download(place)}><span aria-hidden="true">↓ </span>{entry.name}</button>
        )}
      </td>
      <td class="number">{bytes(entry.size_bytes)}</td>
      <td title={moment(entry.modified_at)}><Age time={entry.modified_at} /></td>
    </tr>
  );
}

function Breadcrumb({ folder }: { folder: string }) {
  const parts = folder ? folder.split("/") : [];
  const links = [t("All files"), ...parts].map((text, at) => ({ text, path: parts.slice(0, at).join("/") }));
  return (
    <nav class="breadcrumb" aria-label={t("Folders")}>
      {links.map((link, at) => (
        <span key={link.path}>
          {at > 0 && <span class="soft"> / </span>}
          {at === links.length - 1 ? (
            <span aria-current="page">{link.text}</span>
          ) : (
            <a href={linkTo({ ...address.value, path: link.path })}>{link.text}</a>
          )}
        </span>
      ))}
    </nav>
  );
}

// The service says that it is an attachment, so the page stays.
function follow(url: string): void {
  const { protocol, href, origin } = new URL(url, location.href);
  if (protocol !== location.protocol || !href.startsWith(`${origin}/`)) return;
  const link = document.createElement("a");
  link.href = href;
  link.download = "";
  link.click();
}

chinese({
  "Copy the URI": "复制 URI",
  "Nothing here yet.": "这里还没有内容。",
  "Name": "名称",
  "Size": "大小",
  "Changed": "修改时间",
  "The folder has more entries than are shown here.": "此文件夹的条目多于此处所示。",
  "Download": "下载",
  "All files": "全部文件",
  "Folders": "文件夹",
});
