import { parseExact, writeExact } from "@/api/exactJson";
import type { SchemaColumn } from "@/format/columns";
import type { KeyTexts } from "@/screens/states/keys";

/**
 * Return the body of a correction of one key. Pure.
 *
 * The service reads a text as the type of its column; only nested values must be JSON.
 *
 * @param set The columns to set; null: the records of the key are deleted.
 */
export function bodyOfCorrection(key: KeyTexts, set: KeyTexts | null, columns: readonly SchemaColumn[]): string {
  const types = new Map(columns.map((column) => [column.name, column.type]));
  const correction =
    set === null
      ? { key, records: [] }
      : { key, set: Object.fromEntries(Object.entries(set).map(([name, text]) => [name, valueOf(text, types.get(name))])) };
  return writeExact({ corrections: [correction] });
}

function valueOf(text: string | null, type = ""): unknown {
  if (text === null || !/^(ARRAY|MAP|STRUCT)\b/.test(type)) return text;
  try {
    return parseExact(text);
  } catch {
    return text; // the service says what it expected
  }
}
