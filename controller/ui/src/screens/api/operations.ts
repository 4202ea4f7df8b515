/** The parts of an OpenAPI document that the screen shows. */
export interface Document {
  info: { version: string };
  paths: Record<string, Record<string, RawOperation>>;
  components?: { schemas?: Record<string, Schema> };
}

export interface Schema {
  $ref?: string;
  type?: string;
  format?: string;
  title?: string;
  const?: unknown;
  enum?: unknown[];
  anyOf?: Schema[];
  oneOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
  minimum?: number;
  maximum?: number;
  default?: unknown;
  description?: string;
}

interface Content {
  schema?: Schema;
  examples?: Record<string, { value: unknown }>;
}

interface RawOperation {
  operationId: string;
  tags?: string[];
  description?: string;
  parameters?: Parameter[];
  requestBody?: { content: Record<string, Content> };
  responses: Record<string, { description: string; content?: Record<string, Content> }>;
  "x-cbp-scope"?: string;
}

export interface Parameter {
  name: string;
  in: "path" | "query" | "header" | "cookie";
  required?: boolean;
  description?: string;
  example?: string;
  schema?: Schema;
}

export interface Operation {
  id: string;
  tag: string;
  method: string;
  path: string;
  /** The first line of its description. */
  summary: string;
  /** The rest of it. */
  more: string;
  /** What a caller needs; "" if anyone may ask. */
  scope: string;
  parameters: Parameter[];
  /** Media type of the body; "" if there is none. */
  bodyType: string;
  bodySchema: Schema | undefined;
  /** What a body may be, as text; "" if the document has no example. */
  bodyExample: string;
  answers: { status: string; description: string; schema: Schema | undefined }[];
  /** Whether the answer has no end, so that only a shell shows it well. */
  streams: boolean;
}

const METHODS = new Set(["get", "post", "put", "patch", "delete"]);

/** Return every operation, in the document's order. Pure. */
export function operationsOf(document: Document): Operation[] {
  return Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods)
      .filter(([method]) => METHODS.has(method))
      .map(([method, raw]) => operationOf(path, method, raw)),
  );
}

function operationOf(path: string, method: string, raw: RawOperation): Operation {
  const [summary = "", ...more] = (raw.description ?? "").split("\n\n");
  const [bodyType, body] = Object.entries(raw.requestBody?.content ?? {})[0] ?? ["", undefined];
  const example = Object.values(body?.examples ?? {})[0]?.value;
  return {
    id: raw.operationId,
    tag: raw.tags?.[0] ?? "",
    method: method.toUpperCase(),
    path,
    summary: summary.replaceAll("\n", " "),
    more: more.join("\n\n"),
    scope: raw["x-cbp-scope"] ?? "",
    parameters: raw.parameters ?? [],
    bodyType,
    bodySchema: body?.schema,
    bodyExample: example === undefined ? "" : JSON.stringify(example),
    answers: Object.entries(raw.responses).map(([status, { description, content }]) => ({
      status,
      description,
      schema: Object.values(content ?? {})[0]?.schema,
    })),
    streams: Object.keys(raw.responses["200"]?.content ?? {}).includes("text/event-stream"),
  };
}

/** Return those that have every word in their path, name or description. Pure. */
export function matching(operations: readonly Operation[], text: string): Operation[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return operations.filter(({ id, method, path, summary, more }) => {
    const all = `${id} ${method} ${path} ${summary} ${more}`.toLowerCase();
    return words.every((word) => all.includes(word));
  });
}

/** Return operations by tag, both in the order in which they come. Pure. */
export function byTag(operations: readonly Operation[]): [string, Operation[]][] {
  const tags = new Map<string, Operation[]>();
  for (const one of operations) tags.set(one.tag, [...(tags.get(one.tag) ?? []), one]);
  return [...tags];
}

/** Return a schema as a few words, such as "integer from 1 to 500" or "list of RunOut". Pure. */
export function typeText(schema: Schema | undefined): string {
  if (schema === undefined) return "";
  if (schema.$ref !== undefined) return schema.$ref.split("/").at(-1) ?? "";
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices !== undefined) {
    const words = choices.filter(({ type }) => type !== "null").map(typeText);
    return [...new Set(words)].join(" or ");
  }
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum !== undefined) return schema.enum.map((one) => JSON.stringify(one)).join(" or ");
  if (schema.type === "array") return `list of ${typeText(schema.items)}`;
  const low = schema.minimum === undefined ? "" : ` from ${schema.minimum}`;
  const high = schema.maximum === undefined ? "" : ` to ${schema.maximum}`;
  return `${schema.format ?? schema.type ?? "anything"}${low}${high}`;
}

/** Return the fields of a schema that the document names; none for one without fields. Pure. */
export function fieldsOf(
  schema: Schema | undefined,
  document: Document,
): { name: string; required: boolean; type: string; description: string }[] {
  const name = schema?.$ref?.split("/").at(-1);
  const whole = name === undefined ? schema : document.components?.schemas?.[name];
  return Object.entries(whole?.properties ?? {}).map(([field, inner]) => ({
    name: field,
    required: whole?.required?.includes(field) ?? false,
    type: typeText(inner),
    description: inner.description ?? "",
  }));
}

/** Return the address of a request: parameters of the path and the query filled in. Pure. */
export function addressOf(operation: Operation, values: Readonly<Record<string, string>>): string {
  const path = operation.path.replace(/\{(\w+)\}/g, (whole, name: string) =>
    values[name] === undefined || values[name] === "" ? whole : encodeURIComponent(values[name]),
  );
  const query = new URLSearchParams();
  for (const { name, in: place } of operation.parameters) {
    if (place === "query" && values[name]) query.append(name, values[name]);
  }
  const text = query.toString();
  return text === "" ? path : `${path}?${text}`;
}

/** Return whether all that the path needs is there. Pure. */
export function isComplete(operation: Operation, values: Readonly<Record<string, string>>): boolean {
  return operation.parameters.every(({ name, required }) => !required || Boolean(values[name]));
}

/** Return a call for a shell, with the token that CBP_TOKEN holds there. Pure. */
export function curlOf(
  operation: Operation,
  origin: string,
  values: Readonly<Record<string, string>>,
): string {
  const lines = [`curl -X ${operation.method} "${origin}${addressOf(operation, values)}"`];
  if (operation.scope !== "") lines.push('-H "Authorization: Bearer $CBP_TOKEN"');
  if (operation.bodyType !== "") {
    lines.push(`-H "Content-Type: ${operation.bodyType}"`);
    const example = operation.bodyExample.replaceAll("'", "'\\''");
    lines.push(example === "" ? "--data-binary @FILE" : `-d '${example}'`);
  }
  return lines.join(" \\\n    ");
}
