/** Attempts of one epoch, next to each other. Pure. */

import type { Run } from "@/components/runs/phases";

export interface Attempt {
  run: Run;
  /** "earlier": an attempt that a later one in the list replaced. */
  place: "newest" | "earlier";
  /** How many attempts of the epoch are in the list. */
  of: number;
}

/** Return runs with the attempts of each epoch together, at the place of the newest one. */
export function groupAttempts(runs: readonly Run[]): Attempt[] {
  const groups = new Map<string, Run[]>();
  for (const run of runs) {
    const key = JSON.stringify([run.dataflow, run.stage, run.epoch]);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [run]);
    else group.push(run);
  }
  return [...groups.values()].flatMap((group) =>
    group.map((run, at) => ({ run, place: at === 0 ? "newest" : "earlier", of: group.length }) as const),
  );
}
