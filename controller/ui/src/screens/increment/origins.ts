import type { components } from "@/api/schema";
import { fileNamesOf } from "@/format/fileNames";

type Cause = components["schemas"]["CauseOut"];

/** An increment that another one was made of, directly or by stages between. */
export interface Origin {
  flow: string;
  index: number;
  /** How many runs lie between: 1 for what the run itself has read. */
  steps: number;
  /** The run that wrote it; null: it came from files, or is not known. */
  run: string | null;
  /** Names of the files that it was made from. */
  files: string[];
}

/** So many runs are asked for their causes; a loop of stages may have thousands. */
export const RUNS_MAX = 16;

/**
 * Return what an increment was made of, from the run that wrote it back to files.
 *
 * `causesOf` gives what caused a run. `cut`: more runs lie behind than were asked.
 */
export async function originsOf(
  run: string,
  causesOf: (run: string) => Promise<readonly Cause[]>,
): Promise<{ origins: Origin[]; cut: boolean }> {
  const origins = new Map<string, Origin>();
  const asked = new Set<string>();
  let level = [run];
  for (let steps = 1; level.length > 0; steps += 1) {
    const now = level.slice(0, RUNS_MAX - asked.size);
    if (now.length === 0) return { origins: [...origins.values()], cut: true };
    for (const one of now) asked.add(one);
    const causes = (await Promise.all(now.map(causesOf))).flat();
    for (const { flow, index, run: writer, origin } of causes) {
      const files = fileNamesOf(origin);
      const key = `${flow}/${index}`;
      if (!origins.has(key)) origins.set(key, { flow, index, steps, run: writer, files });
    }
    const writers = causes.flatMap((cause) => (cause.run === null ? [] : [cause.run]));
    level = [...level.slice(now.length), ...new Set(writers)].filter((one) => !asked.has(one));
  }
  return { origins: [...origins.values()], cut: false };
}
