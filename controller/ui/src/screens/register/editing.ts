/** What the editor of a document decides. Pure. */

import type { components } from "@/api/schema";

type Translator = components["schemas"]["TranslatorOut"];

export interface Mistake {
  code: string;
  where: string;
  message: string;
  /** From 1; 0: not known. */
  line: number;
  column: number;
}

/** A document to begin with, for one who has none. */
export const TEMPLATE = `name: clicks
sources:
  urls: {schema: url STRING, format: jsonl}
stages:
  count: {translator: url_count, inputs: {urls: urls}}
`;

/** Return the mistakes that the details of a problem list. */
export function mistakesOf(details: Record<string, unknown>): Mistake[] {
  const listed = details["mistakes"];
  if (!Array.isArray(listed)) return [];
  return listed.map((one: Record<string, unknown>) => ({
    code: String(one["code"] ?? ""),
    where: String(one["where"] ?? ""),
    message: String(one["message"] ?? ""),
    line: Number(one["line"] ?? 0),
    column: Number(one["column"] ?? 0),
  }));
}

/** Return the offset in a text of a line and a column, both from 1; inside the text, whatever they are. */
export function offsetOf(text: string, line: number, column: number): number {
  const lines = text.split("\n");
  const row = Math.min(Math.max(line, 1), lines.length) - 1;
  const before = lines.slice(0, row).reduce((all, one) => all + one.length + 1, 0);
  return before + Math.min(Math.max(column, 1) - 1, lines[row]?.length ?? 0);
}

/** Return the parts of a line before, in and behind a mistake that begins at a column, from 1. */
export function splitAt(line: string, column: number): [string, string, string] {
  const start = Math.min(Math.max(column, 1) - 1, line.length);
  const word = /^("[^"]*"|'[^']*'|[^\s,:{}[\]]+|.)/.exec(line.slice(start))?.[0] ?? "";
  return [line.slice(0, start), word, line.slice(start + word.length)];
}

/** Return a document with one more stage, which a translator carries out. */
export function withStage(text: string, translator: Translator): string {
  const taken = (name: string) => new RegExp(`^  ${name}:`, "m").test(text);
  let name = translator.name;
  for (let number = 2; taken(name); number += 1) name = `${translator.name}_${number}`;
  const inputs = (translator.ports?.inputs ?? [])
    .map((port) => `      ${port.name}: FLOW  # ${port.columns}`)
    .join("\n");
  const parameters = Object.keys(translator.parameters)
    .map((parameter) => `      ${parameter}: VALUE`)
    .join("\n");
  const stage = [
    `  ${name}:`,
    `    translator: ${translator.name}`,
    ...(translator.ports === null && parameters !== "" ? ["    parameters:", parameters] : []),
    "    inputs:",
    inputs === "" ? "      INPUT: FLOW" : inputs,
    "",
  ].join("\n");
  const body = text === "" || text.endsWith("\n") ? text : `${text}\n`;
  const stages = /^stages:[ \t]*(\{\})?[ \t]*$/m;
  if (!stages.test(body)) return `${body}stages:\n${stage}`;
  const open = body.replace(stages, "stages:");
  const begin = open.search(/^stages:$/m);
  const rest = open.slice(begin + "stages:\n".length);
  const next = /^\S/m.exec(rest);
  const at = next === null ? open.length : begin + "stages:\n".length + next.index;
  return `${open.slice(0, at)}${stage}${open.slice(at)}`;
}
