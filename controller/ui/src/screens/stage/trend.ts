/** The latest runs of a stage as bars over epochs, and their figures as rows. Pure. */

import { PHASES, secondsByPhase, type PhaseName, type Run } from "@/components/runs/phases";

export interface TrendBar {
  run: Run;
  seconds: number;
  /** From the bottom up. */
  parts: { name: PhaseName; seconds: number }[];
  groups: number | undefined;
  recordsIn: number | undefined;
  /** Share of the look-ups in the state that used an index; undefined: there were none. */
  indexHits: number | undefined;
}

/** Return the bars of committed runs, oldest first; the figures are those of the stage itself. */
export function trendOf(runs: readonly Run[], stage: string): TrendBar[] {
  return [...runs].reverse().map((run) => {
    const sums = secondsByPhase(run);
    return {
      run,
      seconds: run.seconds ?? 0,
      parts: PHASES.filter((name) => sums[name] > 0).map((name) => ({ name, seconds: sums[name] })),
      groups: figure(run, stage, "groups"),
      recordsIn: figure(run, stage, "records_in"),
      indexHits: hits(run.figures),
    };
  });
}

/** Return the share of look-ups that used an index, over all runs together. */
export function indexHitRate(runs: readonly Run[]): number | undefined {
  const sums = { lookups_index: 0, lookups_scan: 0 };
  for (const run of runs) {
    sums.lookups_index += run.figures["lookups_index"] ?? 0;
    sums.lookups_scan += run.figures["lookups_scan"] ?? 0;
  }
  return hits(sums);
}

function hits(figures: Record<string, number>): number | undefined {
  const index = figures["lookups_index"] ?? 0;
  const all = index + (figures["lookups_scan"] ?? 0);
  return all === 0 ? undefined : index / all;
}

function figure(run: Run, stage: string, name: string): number | undefined {
  return run.figures[`${stage}/${name}`] ?? run.figures[name];
}
