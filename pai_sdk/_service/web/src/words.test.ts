import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import test from "node:test";
import { about } from "./place.ts";
import { t } from "./words.ts";

const sources = globSync("**/*.{ts,tsx}", { exclude: ["node_modules/**", "**/*.test.ts"] }).map((file) => ({
  file,
  text: readFileSync(file, "utf8"),
}));

test("sentences of the service have as many places in Chinese", () => {
  const text = sources.find(({ file }) => file === "service_texts.ts")?.text ?? "";
  const places = (sentence: string | undefined) => [...(sentence ?? "").matchAll(/\{\d\}/g)].map(([place]) => place).sort().join();
  const pairs = [...text.matchAll(/^ {2}"≈((?:[^"\\]|\\.)*)": "((?:[^"\\]|\\.)*)",$/gm)];
  assert.ok(pairs.length > 20);
  for (const [, english, chinese] of pairs) assert.equal(places(english), places(chinese), english);
});

test("a text has one Chinese, in whichever files it is", () => {
  const found = new Map<string, Set<string>>();
  for (const { text } of sources) {
    for (const [, block] of text.matchAll(/\bchinese\(\{([^]*?)\n\}\)/g)) {
      for (const [, key, chinese] of (block ?? "").matchAll(/^\s*"((?:[^"\\]|\\.)*)":\s*"((?:[^"\\]|\\.)*)"/gm)) found.set(key ?? "", (found.get(key ?? "") ?? new Set()).add(chinese ?? ""));
    }
  }
  assert.ok(found.size > 400);
  assert.deepEqual([...found].filter(([, all]) => all.size > 1).map(([key, all]) => [key, ...all]), []);
});

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

test("a word is singular for one, and the page's word for jobs", () => {
  assert.equal(t("Delete {n} {n|job|jobs}", { n: 1 }), "Delete 1 job");
  assert.equal(t("Delete {n} {n|job|jobs}", { n: 0 }), "Delete 0 jobs");
  assert.equal(t("{n} of {m} {m|run|runs} {n|lacks|lack} this metric", { n: "1", m: "1,001" }), "1 of 1,001 runs lacks this metric");
  about.value = { kind: "service" } as never;
  assert.equal(t("{n} {n|run|runs}", { n: 1 }) + t(", {n} {n|run|runs}", { n: 2 }), "1 job, 2 jobs");
});

test("a count stands before a word that fits it", () => {
  const fixed = /(?<!buckets of )\{(?:n|m|all|values)\} (?:\w+ )?(?:jobs|\{runs\}|instances|lines|points|rows|files|groups|curves|hits|rules|changes|views)\b/;
  const wrong = sources.flatMap(({ file, text }) => [...text.matchAll(/\bt\(\s*"((?:[^"\\]|\\.)*)"/g)].map((match) => match[1] ?? "").filter((key) => fixed.test(key)).map((key) => `${file}: ${key}`));
  assert.deepEqual(wrong, []);
});
