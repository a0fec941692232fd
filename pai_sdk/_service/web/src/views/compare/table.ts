// The rows of a comparison of runs, which differs or not, and its best values.

export interface Row {
  group: string;
  name: string;
  /** One for each run; empty where it has none. */
  texts: string[];
  isSame: boolean;
  isNumber: boolean;
  /** Which of them are the best. */
  best: boolean[];
}

const LOW = /loss|err|perplex|ppl|nll|mse|mae|rmse|wer|fid|latency/i;
const HIGH = /acc|f1|auc|bleu|rouge|reward|score|precision|recall|map|iou|psnr|ssim|throughput/i;

export function rowOf(group: string, name: string, texts: string[]): Row {
  return { group, name, texts, isSame: new Set(texts).size < 2, isNumber: false, best: [] };
}

/** A row of a metric; the best value is the lowest of a loss and the highest of an accuracy. */
export function metricRow(tag: string, fact: "last" | "min" | "max", values: readonly (number | null)[], write: (value: number) => string): Row {
  const wants = LOW.test(tag) ? Math.min : HIGH.test(tag) ? Math.max : undefined;
  const finite = values.filter((value): value is number => value !== null && Number.isFinite(value));
  const isJudged = wants && fact !== (wants === Math.min ? "max" : "min") && new Set(finite).size > 1;
  const best = isJudged ? wants(...finite) : Number.NaN;
  return { ...rowOf("metrics", `${tag} ${fact}`, values.map((value) => (value === null ? "" : write(value)))), isNumber: true, best: values.map((value) => value === best) };
}

/** Values by their names, as rows: those that differ first. */
export function valueRows(group: string, values: readonly Readonly<Record<string, unknown>>[]): Row[] {
  const names = [...new Set(values.flatMap((one) => Object.keys(one)))];
  const rows = names.map((name) => rowOf(group, name, values.map((one) => (name in one ? written(one[name]) : ""))));
  return rows.sort((one, other) => Number(one.isSame) - Number(other.isSame));
}

/** As CSV. What a program for tables would take for a formula gets an apostrophe. */
export function csvOf(heads: readonly string[], rows: readonly Row[]): string {
  const cell = (written: string): string => {
    const text = written.replace(/^−(?=[\d∞])/, "-"); // the minus sign of the page is none of a program
    const safe = /^[=+\-@\t\r]/.test(text) && !Number.isFinite(Number(text)) ? `'${text}` : text;
    return /[",\r\n]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
  };
  return [heads, ...rows.map(({ name, texts }) => [name, ...texts])].map((cells) => cells.map(cell).join(",")).join("\r\n") + "\r\n";
}

function written(value: unknown): string {
  if (typeof value === "number") return String(Number(value.toPrecision(12)));
  return typeof value === "string" ? value : JSON.stringify(value);
}
