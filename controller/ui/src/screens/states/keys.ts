import type { DataRecord, Query } from "@/api/records";
import { writeExact } from "@/api/exactJson";
import type { SchemaColumn } from "@/format/columns";
import type { Words } from "@/format/shell";

/** What is in the address for a key: a text for each column, or null. Pure. */
export type KeyTexts = Record<string, string | null>;

/** Read a key from the address ("k.url=a", "null=site"); null if a column is missing. Those of `more` may be. */
export function keyFromAddress(
  columns: readonly SchemaColumn[],
  parameters: URLSearchParams,
  more: readonly SchemaColumn[] = [],
): KeyTexts | null {
  const nulls = new Set(parameters.getAll("null"));
  const key: KeyTexts = {};
  for (const column of [...columns, ...more]) {
    const { name } = column;
    const text = nulls.has(name) ? null : parameters.get(`k.${name}`);
    if (text === null && !nulls.has(name)) {
      if (more.includes(column)) continue;
      return null;
    }
    key[name] = text;
  }
  return columns.length === 0 ? null : key;
}

/** Write a key into the address; the rest of the address stays. */
export function keyIntoAddress(key: KeyTexts, before: URLSearchParams): URLSearchParams {
  const after = new URLSearchParams([...before].filter(([name]) => name !== "null" && !name.startsWith("k.") && name !== "history" && name !== "of-key"));
  for (const [name, text] of Object.entries(key)) {
    if (text === null) after.append("null", name);
    else after.set(`k.${name}`, text);
  }
  return after;
}

/** Return the key that a form holds: all of its columns, and those of `more` that are not empty. */
export function keyOfForm(columns: readonly SchemaColumn[], more: readonly SchemaColumn[], texts: KeyTexts): KeyTexts {
  const given = more.filter(({ name }) => texts[name] !== undefined && texts[name] !== "");
  return Object.fromEntries([...columns, ...given].map(({ name }) => [name, texts[name] === undefined ? "" : texts[name]]));
}

/** Return the parameters of a look-up. */
export function keyQuery(key: KeyTexts): Query {
  return Object.entries(key).map(([name, text]): Query[number] => (text === null ? ["_null", name] : [name, text]));
}

/** Return the key of a record as texts. */
export function keyOfRecord(columns: readonly SchemaColumn[], record: DataRecord): KeyTexts {
  return Object.fromEntries(
    columns.map(({ name }) => {
      const value = record[name];
      if (value === null || value === undefined) return [name, null];
      return [name, typeof value === "string" ? value : writeExact(value)];
    }),
  );
}

/** Return the arguments of the command that looks the key up. */
export function keyArguments(key: KeyTexts): Words {
  return Object.entries(key).flatMap(([name, text]) => (text === null ? ["--null", name] : [`${name}=${text}`]));
}
