/**
 * Parse JSON so that no whole number loses digits: one beyond 2^53 becomes a bigint.
 *
 * A browser that does not tell the text of a number gives the nearest one, as `JSON.parse` does.
 */
export function parseExact(text: string): unknown {
  const revive = (_key: string, value: unknown, context?: { source?: string }): unknown => {
    if (typeof value !== "number" || Number.isSafeInteger(value)) return value;
    const source = context?.source;
    return source !== undefined && /^-?\d+$/.test(source) ? BigInt(source) : value;
  };
  return JSON.parse(text, revive as (key: string, value: unknown) => unknown);
}

/** Write JSON; the inverse of `parseExact`. */
export function writeExact(value: unknown): string {
  if (typeof value === "bigint") return value.toString();
  if (Array.isArray(value)) return `[${value.map(writeExact).join(",")}]`;
  if (typeof value === "object" && value !== null) {
    const members = Object.entries(value).filter(([, item]) => item !== undefined);
    return `{${members.map(([name, item]) => `${JSON.stringify(name)}:${writeExact(item)}`).join(",")}}`;
  }
  return JSON.stringify(value);
}
