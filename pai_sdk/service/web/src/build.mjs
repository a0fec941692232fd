// Builds the page into ../static, or compares it with what is there: node build.mjs [--check] [--out FOLDER]
//
// The same sources give the same bytes. The names of script and style have a hash of their content, so browsers may
// keep them; each has a twin that is compressed already.
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { gzipSync } from "node:zlib";
import * as esbuild from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const { values: options } = parseArgs({ options: { check: { type: "boolean" }, out: { type: "string" } } });
const folder = options.out ?? join(here, "..", "static");
const MOST_BYTES = 60 * 1024; // script and style, compressed
const LIBRARIES = ["@preact/signals", "@preact/signals-core", "preact"];

const built = await esbuild.build({
  entryPoints: { app: join(here, "main.tsx") },
  outdir: join(folder, "assets"),
  absWorkingDir: here,
  bundle: true,
  minify: true,
  write: false,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  logLevel: "warning",
});

const files = new Map();
const names = {};
let zippedBytes = 0;
for (const { path, contents } of built.outputFiles) {
  const kind = path.endsWith(".css") ? "css" : "js";
  const hash = createHash("sha256").update(contents).digest("hex").slice(0, 10);
  names[kind] = `assets/app-${hash}.${kind}`;
  zippedBytes += add(names[kind], Buffer.from(contents));
}
const template = readFileSync(join(here, "index.html"), "utf8");
files.set("index.html", Buffer.from(template.replace("{style}", names.css).replace("{script}", names.js)));
const licences = LIBRARIES.map((name) => {
  const { version } = JSON.parse(readFileSync(join(here, "node_modules", name, "package.json"), "utf8"));
  return `${name} ${version}\n\n${readFileSync(join(here, "node_modules", name, "LICENSE"), "utf8").trim()}\n`;
});
files.set("assets/licences.txt", Buffer.from(licences.join(`\n${"-".repeat(80)}\n\n`)));

if (zippedBytes > MOST_BYTES) fail(`script and style have ${zippedBytes} bytes compressed; ${MOST_BYTES} are allowed`);
if (options.check) compare();
else write();
console.log(`${options.check ? "unchanged" : "built"}: ${(zippedBytes / 1024).toFixed(1)} KB compressed`);

function add(name, content) {
  const zipped = gzipSync(content, { level: 9 });
  zipped[9] = 255; // the operating system, which the same content must not depend on
  files.set(name, content);
  files.set(`${name}.gz`, zipped);
  return zipped.length;
}

function present() {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1));
}

function write() {
  for (const name of present()) if (!files.has(name)) rmSync(join(folder, name));
  mkdirSync(join(folder, "assets"), { recursive: true });
  for (const [name, content] of files) writeFileSync(join(folder, name), content);
}

// The compressed twins are compared by their content: another version of zlib may compress in another way.
function compare() {
  const differing = [...files.keys()].filter((name) => !name.endsWith(".gz")).filter((name) => {
    const path = join(folder, name);
    return !existsSync(path) || !readFileSync(path).equals(files.get(name));
  });
  const unknown = present().filter((name) => !files.has(name));
  const wrong = [...differing, ...unknown];
  if (wrong.length > 0) fail(`not what the sources give: ${wrong.join(", ")}; run \`make page\``);
}

function fail(message) {
  console.error(`error: ${message}`);
  process.exit(1);
}
