import type { components } from "@/api/schema";

export type ProcessStack = components["schemas"]["ProcessStackOut"];

const SILENT =
  "The process did not answer in time: it is starting or stopped, waits in the system for a device, or its code handles SIGURG.";

/** The calls of a process as lines, from the author's code on; the last one is where it is. */
export function stackLines({ calls }: ProcessStack): string {
  if (calls.length === 0) return SILENT;
  const first = calls.findIndex((call) => call.authors);
  const shown = calls.slice(Math.max(first, 0)).map((call) => `${call.file}:${call.line} in ${call.function}`);
  return [...(first < 0 ? ["The process is in the service's own code, not in the code of the stage:"] : []), ...shown].join("\n");
}
