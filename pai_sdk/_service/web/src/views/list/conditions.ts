// The conditions of a filter, as far as buttons change them: `status=Running,Failed`.
const PART = /("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|\s*(!=|!~|[<>=]=|[=<>~])\s*/g;
const WORD = /(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\s"'])+|["']/g;
const VALUE = /(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^,"'])+/g;

/** The values that a filter allows for a key. */
export function valuesIn(filter: string, key: string): string[] {
  return conditionsIn(filter)
    .filter((condition) => isOf(condition, key))
    .flatMap((condition) => condition.slice(key.length).replace(/^==?/, "").match(VALUE) ?? [])
    .map((value) => (/^["']/.test(value) ? value.slice(1, -1).replace(/\\(.)/g, "$1") : value));
}

/** The filter with other values for a key; without any, all are allowed. */
export function withValues(filter: string, key: string, values: readonly string[]): string {
  const others = conditionsIn(filter).filter((condition) => !isOf(condition, key));
  const written = values.map((value) => (/^$|[\s,"'=<>!~]/.test(value) ? JSON.stringify(value) : value));
  return [...others, ...(values.length > 0 ? [`${key}=${written.join()}`] : [])].join(" ");
}

function isOf(condition: string, key: string): boolean {
  return condition.startsWith(`${key}=`);
}

function conditionsIn(filter: string): string[] {
  return filter.replace(PART, (_, quoted?: string, operator?: string) => quoted ?? operator ?? "").match(WORD) ?? [];
}
