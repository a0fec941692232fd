import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import test from "node:test";

const sources = globSync("**/*.{ts,tsx}", { exclude: ["node_modules/**", "**/*.test.ts"] }).map((file) => ({
  file,
  text: readFileSync(file, "utf8"),
}));

test("each text has its Chinese", () => {
  const all = sources.map(({ text }) => text).join("\n");
  const known = new Set<string>();
  for (const [, block] of all.matchAll(/\bchinese\(\{([^]*?)\n\}\)/g)) {
    for (const [, quoted, plain] of (block ?? "").matchAll(/^\s*(?:"((?:[^"\\]|\\.)*)"|([\w]+)):/gm)) known.add(quoted ?? plain ?? "");
  }
  const missing = sources.flatMap(({ file, text }) =>
    [...text.matchAll(/\bt\(\s*"((?:[^"\\]|\\.)*)"/g)].map((match) => match[1] ?? "").filter((key) => !known.has(key)).map((key) => `${file}: ${key}`),
  );
  assert.deepEqual(missing, []);
});
