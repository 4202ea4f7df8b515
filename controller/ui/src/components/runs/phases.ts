/** The phases of a run as bars on an axis of seconds. Pure. */

import type { components } from "@/api/schema";

export type Run = components["schemas"]["RunOut"];
export type Phase = components["schemas"]["PhaseOut"];

export const PHASES = ["start", "plan", "job", "assemble", "tidy", "finish"] as const;
export type PhaseName = (typeof PHASES)[number];

/** What each phase does, in words. */
export const PHASE_WORDS: Record<string, string> = {
  start: "waiting for a thread",
  plan: "planning the tasks",
  job: "running the tasks and the author's code",
  assemble: "combining the reports of the tasks",
  tidy: "compacting output tables",
  finish: "recording, publishing and committing",
};

export interface Bar {
  name: string;
  begin: number;
  end: number;
  /** Whether the phase is under way. */
  open: boolean;
}

/** Return the bars of a run; a phase that is under way ends now. */
export function barsOf(run: Run, now: Date): Bar[] {
  const elapsed = secondsOf(run, now);
  return run.phases.map((phase) => ({
    name: phase.name,
    begin: phase.begin_seconds,
    end: Math.max(phase.begin_seconds, phase.end_seconds ?? elapsed),
    open: phase.end_seconds === null,
  }));
}

/** Return how long a run took, or has taken so far. */
export function secondsOf(run: Run, now: Date): number {
  return run.seconds ?? Math.max(0, (now.getTime() - new Date(run.started_at).getTime()) / 1000);
}

/** Return the seconds of each phase, those of a phase that comes twice added up. */
export function secondsByPhase(run: Run): Record<PhaseName, number> {
  const sums = Object.fromEntries(PHASES.map((name) => [name, 0])) as Record<PhaseName, number>;
  for (const phase of run.phases) {
    const name = phase.name as PhaseName;
    if (name in sums && phase.end_seconds !== null) {
      sums[name] += phase.end_seconds - phase.begin_seconds;
    }
  }
  return sums;
}

/** Return round places for the marks of an axis from 0 to `most`: at most `count` + 1 of them. */
export function marksOf(most: number, count = 5): number[] {
  if (most <= 0) return [0];
  const rough = most / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5, 10].find((one) => one * power >= rough * 0.999999) ?? 10) * power;
  const marks: number[] = [];
  for (let n = 0; n * step <= most * 1.000001; n += 1) marks.push(Number((n * step).toPrecision(12)));
  return marks;
}
