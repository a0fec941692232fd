// What a job has written: outputs, checkpoints, logs; folder by folder, each file with a preview and a download.
import { useEffect, useState } from "preact/hooks";
import { address, change, field, linkTo } from "../../address.ts";
import { ask, send } from "../../api.ts";
import { bytes, count } from "../../format.ts";
import { useAnswer } from "../../parts/answer.ts";
import { Age, Notice, useCopy } from "../../parts/basics.tsx";
import { wordsOf } from "../../parts/dialog.tsx";
import { Pending } from "../../parts/table.tsx";
import { about } from "../../place.ts";
import { chinese, t } from "../../words.ts";
import { download } from "./download.ts";
import { previewOf, type Preview } from "./preview.ts";
import type { Entry, Files as FilesOf } from "./wire.ts";

const path = field("path");
const file = field("file");
const by = field("by", "name");

type Save = (kind: "file" | "folder", path: string) => Promise<void>;

export function Files({ id }: { id: string }) {
  const folder = path.value.replace(/\/+$/, "");
  const shown = file.value;
  const [files] = useAnswer((signal) => ask<FilesOf>("files", { run: id, query: { path: folder }, signal }), [id, folder]);
  const [refused, setRefused] = useState("");
  const [isCopied, copy] = useCopy();
  const save: Save = async (kind, from) => {
    setRefused("");
    await download(id, { kind, path: from }).catch((error: unknown) => setRefused(wordsOf(error)));
  };
  const base = files.value?.uri?.replace(/\/+$/, "");
  const uri = base && shown ? `${base}/${shown}` : base;
  const entries = files.value?.entries ?? [];
  const canPack = entries.length > 0 && (folder !== "" || about.value?.kind === "folder");
  const place = folder ? `${folder}/${shown}` : shown;
  return (
    <div class="files">
      <div class="job-bar">
        <Breadcrumb folder={folder} file={shown} />
        <span class="buttons">
          {uri && <button class="plain" aria-live="polite" onClick={() => copy(uri)}>{isCopied ? t("Copied") : t("Copy the URI")}</button>}
          {shown && <button onClick={() => void save("file", place)}>{t("Download")}</button>}
          {!shown && canPack && <button onClick={() => void save("folder", folder)}>{t("Download as ZIP")}</button>}
        </span>
      </div>
      {refused && <Notice kind="bad">{refused}</Notice>}
      {shown ? <FilePreview key={place} id={id} path={place} size={entries.find(({ name }) => name === shown)?.size_bytes} /> : (
        <>
          {!files.value && <Pending answer={files} />}
          {files.value && entries.length === 0 && <p class="soft">{t("Nothing here yet.")}</p>}
          {entries.length > 0 && <Listing entries={entries} folder={folder} save={save} />}
          {files.value?.truncated && <p class="warn">{t("The folder is too large to be counted completely.")}</p>}
        </>
      )}
    </div>
  );
}

const ORDERS: Record<string, (one: Entry, other: Entry) => number> = {
  name: (one, other) => one.name.localeCompare(other.name, "en", { numeric: true }),
  size: (one, other) => (one.size_bytes ?? 0) - (other.size_bytes ?? 0),
  time: (one, other) => (one.modified_at ?? 0) - (other.modified_at ?? 0),
};

function Listing({ entries, folder, save }: { entries: readonly Entry[]; folder: string; save: Save }) {
  const isDown = by.value.startsWith("-");
  const key = by.value.replace("-", "");
  const order = ORDERS[key] ?? (ORDERS.name as (typeof ORDERS)[string]);
  const sorted = [...entries].sort((one, other) => Number(other.is_folder) - Number(one.is_folder) || (isDown ? -1 : 1) * order(one, other));
  const head = (name: string, text: string) => (
    <th scope="col" class={name === "size" ? "number" : ""} aria-sort={key === name ? (isDown ? "descending" : "ascending") : undefined}>
      <button class="plain" onClick={() => change({ by: by.value === name || (by.value !== `-${name}` && name !== "name") ? `-${name}` : name }, { replace: true })}>
        {text}{key === name ? (isDown ? " ↓" : " ↑") : ""}
      </button>
    </th>
  );
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={t("Files")}>
      <table class="job-wide">
        <thead><tr>{head("name", t("Name"))}{head("size", t("Size"))}{head("time", t("Changed"))}<th><span class="hidden-text">{t("Download")}</span></th></tr></thead>
        <tbody>{sorted.map((entry) => <Row key={entry.name} entry={entry} folder={folder} save={save} />)}</tbody>
      </table>
    </div>
  );
}

function Row({ entry, folder, save }: { entry: Entry; folder: string; save: Save }) {
  const { name, is_folder: isFolder } = entry;
  const place = folder ? `${folder}/${name}` : name;
  return (
    <tr>
      <td class="name">
        <a href={linkTo(isFolder ? { ...address.value, path: place } : { ...address.value, file: name })}>{isFolder && <span aria-hidden="true">▸ </span>}{name}{isFolder && "/"}</a>
      </td>
      <td class="number" title={entry.size_bytes === null ? "" : `${count(entry.size_bytes)} B`}>{entry.is_partial && "≥ "}{bytes(entry.size_bytes)}</td>
      <td><Age time={entry.modified_at} /></td>
      <td class="number">
        <button class="plain" aria-label={`${t("Download")} ${name}`} title={isFolder ? t("Download as ZIP") : t("Download")} onClick={() => void save(isFolder ? "folder" : "file", place)}>↓</button>
      </td>
    </tr>
  );
}

function FilePreview({ id, path, size }: { id: string; path: string; size: number | null | undefined }) {
  const [content] = useAnswer(async (signal) => new Uint8Array(await (await send("preview", { run: id, query: { path }, signal })).arrayBuffer()), [id, path]);
  if (!content.value) return <Pending answer={content} />;
  const got = content.value.length;
  const isWhole = size === undefined || size === null ? got < 1 << 20 : got >= size;
  const preview = previewOf(path, content.value, isWhole);
  return (
    <>
      {preview.kind === "binary" ? <Notice>{t("No preview of this file: download it.")}</Notice> : <Content preview={preview} bytes={content.value} name={path} />}
      {preview.kind !== "binary" && preview.kind !== "picture" && !isWhole && <p class="soft">{t("The beginning of the file, {n} of {size}.", { n: bytes(got), size: bytes(size) })}</p>}
    </>
  );
}

function Content({ preview, bytes: content, name }: { preview: Preview; bytes: Uint8Array; name: string }) {
  if (preview.kind === "picture") return <Picture type={preview.type} bytes={content} name={name} />;
  if (preview.kind === "text") return <pre class="preview" tabIndex={0} aria-label={name}>{preview.text}</pre>;
  if (preview.kind === "binary") return null;
  const [heads, ...rows] = preview.rows;
  return (
    <div class="scroll preview" tabIndex={0} role="region" aria-label={name}>
      <table>
        <thead><tr>{heads?.map((cell, at) => <th key={at} scope="col">{cell}</th>)}</tr></thead>
        <tbody>{rows.map((row, at) => <tr key={at}>{row.map((cell, column) => <td key={column} class={cell !== "" && Number.isFinite(Number(cell)) ? "number" : ""}>{cell}</td>)}</tr>)}</tbody>
      </table>
    </div>
  );
}

// As `data:`, which no browser opens as a document of this address. As an image, an SVG runs no script.
function Picture({ type, bytes: content, name }: { type: string; bytes: Uint8Array; name: string }) {
  const [url, setUrl] = useState("");
  const [isBroken, setBroken] = useState(false);
  useEffect(() => {
    const reader = new FileReader();
    reader.onload = () => setUrl(reader.result as string);
    reader.readAsDataURL(new Blob([content as BlobPart], { type }));
    return () => reader.abort();
  }, [content, type]);
  if (isBroken) return <Notice>{t("No preview of this file: download it.")}</Notice>;
  return url ? <img class="preview" src={url} alt={name} onError={() => setBroken(true)} /> : null;
}

function Breadcrumb({ folder, file: shown }: { folder: string; file: string }) {
  const parts = folder ? folder.split("/") : [];
  const links = [t("All files"), ...parts].map((text, at) => ({ text, path: parts.slice(0, at).join("/") }));
  return (
    <nav class="breadcrumb" aria-label={t("Folders")}>
      {links.map((link, at) => (
        <span key={link.path}>
          {at > 0 && <span class="soft"> / </span>}
          {at === links.length - 1 && !shown ? (
            <span aria-current="page">{link.text}</span>
          ) : (
            <a href={linkTo({ ...address.value, path: link.path, file: "" })}>{link.text}</a>
          )}
        </span>
      ))}
      {shown && <><span class="soft"> / </span><span aria-current="page">{shown}</span></>}
    </nav>
  );
}

chinese({
  "Copy the URI": "复制 URI",
  "Nothing here yet.": "这里还没有内容。",
  "Name": "名称",
  "Size": "大小",
  "Changed": "修改时间",
  "The folder is too large to be counted completely.": "此文件夹过大，无法完整统计。",
  "Download": "下载",
  "Download as ZIP": "下载为 ZIP",
  "No preview of this file: download it.": "此文件无法预览：请下载。",
  "The beginning of the file, {n} of {size}.": "文件的开头：{size} 中的 {n}。",
  "All files": "全部文件",
  "Folders": "文件夹",
});
