/** Records as the service sent them, to the last digit. Pure. */

/** A number that JavaScript cannot hold exactly, as the service wrote it. */
export type Value = null | boolean | number | string | readonly Value[] | { readonly [key: string]: Value };

export interface RecordsPage {
  columns: { name: string; type: string }[];
  items: Record<string, Value>[];
  cursor: string | null;
}

type Reviver = (this: unknown, key: string, value: unknown, context?: { source?: string }) => unknown;

/**
 * Parse an answer; numbers that a double cannot hold stay text.
 *
 * A BIGINT beyond 2^53 would otherwise be shown with other digits than it has.
 */
export function parseExact(text: string): unknown {
  const exact: Reviver = (_, value, context) =>
    typeof value === "number" && context?.source !== undefined && !isExact(value, context.source)
      ? context.source
      : value;
  return JSON.parse(text, exact as (key: string, value: unknown) => unknown);
}

function isExact(value: number, source: string): boolean {
  return Number.isInteger(value) ? Number.isSafeInteger(value) && !/[.eE]/.test(source) : true;
}

/** Return a value of a record as text for a cell. */
export function textOf(value: Value | undefined): string {
  if (value === undefined || value === null) return "null";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
