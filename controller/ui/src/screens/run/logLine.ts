import type { components } from "@/api/schema";

export type LogLine = components["schemas"]["LogLineOut"];

/** Fields that every line of a run has, and the stack of an error: the page shows them elsewhere. */
const KNOWN = new Set([
  "time", "level", "event", "dataflow", "stage", "epoch", "run", "logger", "exception",
]);

/** A line of a log as text: what happened, and its further fields as "name=value". */
export function lineOf(line: LogLine): { event: string; fields: string } {
  const fields = Object.entries(line)
    .filter(([name, value]) => !KNOWN.has(name) && value !== null && value !== undefined)
    .map(([name, value]) => `${name}=${textOf(value)}`);
  return { event: line.event, fields: fields.join(" ") };
}

function textOf(value: unknown): string {
  if (typeof value === "string") return value;
  if (typeof value === "object" && value !== null && "error_code" in value) {
    return String(value.error_code);
  }
  return JSON.stringify(value);
}
