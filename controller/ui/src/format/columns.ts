/** The columns of a schema, as the service writes it: "url STRING, n BIGINT NOT NULL". Pure. */

export interface SchemaColumn {
  name: string;
  /** Such as "BIGINT" or "DECIMAL(10,2)". */
  type: string;
  nullable: boolean;
}

const NUMERIC = /^(TINYINT|SMALLINT|INT|BIGINT|FLOAT|DOUBLE|DECIMAL)\b/;

/** Return the columns of a schema; commas inside a type separate nothing. */
export function parseColumns(schema: string): SchemaColumn[] {
  return splitTop(schema).map((text) => {
    const [, name = text, rest = ""] = /^\s*(`[^`]*`|\S+)\s*([\s\S]*)$/.exec(text) ?? [];
    const nullable = !/\bNOT NULL\s*$/.test(rest);
    return {
      name: name.replace(/^`|`$/g, ""),
      type: rest.replace(/\s*\bNOT NULL\s*$/, "").trim(),
      nullable,
    };
  });
}

/** Tell whether figures can be made of a column. */
export function isNumeric(column: SchemaColumn): boolean {
  return NUMERIC.test(column.type);
}

function splitTop(text: string): string[] {
  const parts: string[] = [];
  let depth = 0;
  let start = 0;
  for (let at = 0; at < text.length; at += 1) {
    const sign = text[at];
    if (sign === "<" || sign === "(") depth += 1;
    if (sign === ">" || sign === ")") depth -= 1;
    if (sign === "," && depth === 0) {
      parts.push(text.slice(start, at));
      start = at + 1;
    }
  }
  const last = text.slice(start);
  return last.trim() === "" ? parts : [...parts, last];
}
