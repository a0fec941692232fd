// What a file is shown as: a picture, a table, or text. The bytes are the beginning of the file.

export type Preview = { kind: "picture"; type: string } | { kind: "table"; rows: string[][] } | { kind: "text"; text: string } | { kind: "binary" };

const MOST_ROWS = 200;
const MOST_COLUMNS = 50;
const MOST_TEXT = 300_000; // characters
const UNSEEN = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/g;
const MAGIC: [string, string][] = [
  ["\x89PNG", "image/png"],
  ["\xff\xd8\xff", "image/jpeg"],
  ["GIF8", "image/gif"],
  ["RIFF", "image/webp"],
];

export function previewOf(name: string, bytes: Uint8Array, isWhole: boolean): Preview {
  const ending = name.toLowerCase().split(".").pop() ?? "";
  const begin = String.fromCharCode(...bytes.subarray(0, 12));
  const type = ending === "svg" ? "image/svg+xml" : MAGIC.find(([magic, name]) => begin.startsWith(magic) && (name !== "image/webp" || begin.endsWith("WEBP")))?.[1];
  if (type && isWhole) return { kind: "picture", type };
  if ((type && ending !== "svg") || bytes.subarray(0, 8000).includes(0)) return { kind: "binary" };
  const text = new TextDecoder().decode(bytes, { stream: !isWhole });
  if (ending === "csv" || ending === "tsv") return { kind: "table", rows: rowsOf(text, ending === "csv" ? "," : "\t", isWhole) };
  if (ending === "json" && isWhole) {
    try {
      return { kind: "text", text: JSON.stringify(JSON.parse(text), null, 2).slice(0, MOST_TEXT) };
    } catch {
      // shown as it is
    }
  }
  return { kind: "text", text: text.slice(0, MOST_TEXT).replace(/\r\n/g, "\n").replace(UNSEEN, "�") };
}

/** The first rows of a table; a cell in quotes may have separators and line ends. The last row of a part is left out. */
export function rowsOf(text: string, separator: string, isWhole: boolean): string[][] {
  const rows: string[][] = [];
  let [row, cell, isQuoted] = [[] as string[], "", false];
  for (let at = 0; at < text.length && rows.length < MOST_ROWS; at++) {
    const sign = text[at] as string;
    if (isQuoted) {
      if (sign !== '"') cell += sign;
      else if (text[at + 1] === '"') cell += text[++at];
      else isQuoted = false;
    } else if (sign === '"' && cell === "") isQuoted = true;
    else if (sign === separator || sign === "\n") {
      if (row.length < MOST_COLUMNS) row.push(cell.replace(/\r$/, ""));
      cell = "";
      if (sign === "\n") [rows[rows.length], row] = [row, []];
    } else cell += sign;
  }
  if (isWhole && rows.length < MOST_ROWS && (cell || row.length > 0)) rows.push([...row, cell]);
  return rows;
}
