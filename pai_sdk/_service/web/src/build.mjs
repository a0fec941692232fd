// Builds the page into ../static, or compares it with what is there: node build.mjs [--check] [--out FOLDER]
//
// The same sources give the same bytes. Names have a hash of the content, so browsers may keep the files; each has
// twins that are compressed already: by Brotli, which browsers accept over HTTPS and from this machine, and by gzip. A view is loaded when it is shown first, and the Chinese texts, which stand in the
// files that use them, are one file of their own. The style of all views is one file.
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { brotliCompressSync, gzipSync } from "node:zlib";
import * as esbuild from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const { values: options } = parseArgs({ options: { check: { type: "boolean" }, out: { type: "string" } } });
const folder = options.out ?? join(here, "..", "static");
const MOST_FIRST_BYTES = 60 * 1024; // compressed: what a browser loads until it shows the list
const MOST_BYTES = 110 * 1024; // compressed: all that there is
const LIBRARIES = ["@preact/signals", "@preact/signals-core", "preact"];
const CHINESE = /\nchinese\(\{\n([^]*?)\n\}\);/g;

const styles = new Set();
const chinese = {};
const common = { bundle: true, minify: true, write: false, charset: "utf8", legalComments: "none", logLevel: "warning" };

const script = await esbuild.build({
  ...common,
  entryPoints: { app: join(here, "main.tsx"), chinese: join(here, "chinese.ts") },
  outdir: join(folder, "assets"),
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  absWorkingDir: here,
  format: "esm",
  splitting: true,
  metafile: true,
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  plugins: [{ name: "page", setup: setUp }],
});
const style = await esbuild.build({
  ...common,
  stdin: { contents: inOrder(styles).map((path) => `@import ${JSON.stringify(path)};`).join("\n"), loader: "css", resolveDir: here },
});

// That of the page first; the order in which esbuild reads files is another one each time.
function inOrder(paths) {
  const own = join(here, "style.css");
  return [own, ...[...paths].filter((path) => path !== own).sort()];
}

// Takes the style sheets and the Chinese texts out of the scripts.
function setUp(build) {
  build.onLoad({ filter: /\.css$/ }, ({ path }) => {
    styles.add(path);
    return { contents: "", loader: "js" };
  });
  build.onLoad({ filter: /\.tsx?$/ }, ({ path }) => {
    const text = readFileSync(path, "utf8");
    return { contents: text.replace(CHINESE, ""), loader: path.endsWith("x") ? "tsx" : "ts" };
  });
  build.onResolve({ filter: /^all-chinese-texts$/ }, ({ path }) => ({ path, namespace: "chinese" }));
  build.onLoad({ filter: /.*/, namespace: "chinese" }, () => {
    const sources = readdirSync(here, { recursive: true }).filter((name) => /\.tsx?$/.test(name) && !name.includes("node_modules"));
    for (const name of sources.sort()) for (const [, texts] of readFileSync(join(here, name), "utf8").matchAll(CHINESE)) Object.assign(chinese, new Function(`return {${texts}}`)());
    return { contents: JSON.stringify(chinese), loader: "json" }; // a text of several files once
  });
}

const files = new Map();
const entries = Object.entries(script.metafile.outputs);
let allBytes = 0;
let gzipBytes = 0;
let firstBytes = 0;
const first = firstLoaded();
for (const { path, contents } of script.outputFiles) add(`assets/${basename(path)}`, Buffer.from(contents), first.has(basename(path)));
const css = Buffer.from(style.outputFiles[0].contents);
const cssName = `assets/app-${createHash("sha256").update(css).digest("hex").slice(0, 8)}.css`;
add(cssName, css, true);
const scriptName = `assets/${basename(entries.find(([, { entryPoint }]) => entryPoint === "main.tsx")[0])}`;
const template = readFileSync(join(here, "index.html"), "utf8");
// Without these a browser finds each script only in the one before it.
const preloads = [...first].filter((name) => !scriptName.endsWith(name)).sort().map((name) => `  <link rel="modulepreload" href="assets/${name}">\n`);
files.set("index.html", Buffer.from(template.replace("{style}", cssName).replace("{preloads}", preloads.join("")).replace("{script}", scriptName)));
const licences = LIBRARIES.map((name) => {
  const { version } = JSON.parse(readFileSync(join(here, "node_modules", name, "package.json"), "utf8"));
  return `${name} ${version}\n\n${readFileSync(join(here, "node_modules", name, "LICENSE"), "utf8").trim()}\n`;
});
files.set("assets/licences.txt", Buffer.from(licences.join(`\n${"-".repeat(80)}\n\n`)));

for (const [what, bytes, most] of [["until the list is shown", firstBytes, MOST_FIRST_BYTES], ["in all", allBytes, MOST_BYTES]]) {
  if (bytes > most) fail(`script and style have ${bytes} bytes compressed ${what}; ${most} are allowed`);
}
if (options.check) compare();
else write();
const inKb = (bytes) => `${(bytes / 1024).toFixed(1)} KB`;
console.log(`${options.check ? "unchanged" : "built"}: ${inKb(firstBytes)} compressed until the list is shown, ${inKb(allBytes)} in all, ${inKb(gzipBytes)} by gzip`);

// The scripts of the entry, which has the list, and those that it imports at once.
function firstLoaded() {
  const found = new Set();
  const outputs = new Map(entries);
  const visit = (path) => {
    if (found.has(basename(path))) return;
    found.add(basename(path));
    for (const { path: other, kind } of outputs.get(path).imports) if (kind === "import-statement") visit(other);
  };
  for (const [path, { entryPoint }] of entries) if (entryPoint === "main.tsx") visit(path);
  return found;
}

function add(name, content, isFirst) {
  const zipped = gzipSync(content, { level: 9 });
  zipped[9] = 255; // the operating system, which the same content must not depend on
  files.set(name, content);
  const smaller = brotliCompressSync(content);
  files.set(`${name}.gz`, zipped);
  files.set(`${name}.br`, smaller);
  allBytes += smaller.length;
  gzipBytes += zipped.length;
  if (isFirst) firstBytes += smaller.length;
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

// The compressed twins are compared by their names: another version of zlib may compress in another way.
function compare() {
  const differing = [...files.keys()].filter((name) => {
    const path = join(folder, name);
    return !existsSync(path) || (!/\.(br|gz)$/.test(name) && !readFileSync(path).equals(files.get(name)));
  });
  const unknown = present().filter((name) => !files.has(name));
  const wrong = [...differing, ...unknown];
  if (wrong.length > 0) fail(`not what the sources give: ${wrong.join(", ")}; run \`make page\``);
}

function fail(message) {
  console.error(`error: ${message}`);
  process.exit(1);
}
