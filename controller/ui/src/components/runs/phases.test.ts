import { describe, expect, it } from "vitest";

import { barsOf, marksOf, secondsByPhase, type Run } from "@/components/runs/phases";

function run(more: Partial<Run>): Run {
  return { started_at: "2026-01-01T00:00:00Z", seconds: 2, phases: [], ...more } as Run;
}

describe("barsOf", () => {
  it("ends a phase that is under way now", () => {
    const going = run({
      seconds: null,
      phases: [
        { name: "start", begin_seconds: 0, end_seconds: 1 },
        { name: "job", begin_seconds: 1, end_seconds: null },
      ],
    });
    expect(barsOf(going, new Date("2026-01-01T00:00:05Z"))).toEqual([
      { name: "start", begin: 0, end: 1, open: false },
      { name: "job", begin: 1, end: 5, open: true },
    ]);
  });

  it("never ends a phase before it began, whatever the browser's clock says", () => {
    const going = run({ seconds: null, phases: [{ name: "job", begin_seconds: 3, end_seconds: null }] });
    expect(barsOf(going, new Date("2025-01-01T00:00:00Z"))[0]?.end).toBe(3);
  });
});

describe("secondsByPhase", () => {
  it("adds up a phase that comes twice", () => {
    const twice = run({
      phases: [
        { name: "job", begin_seconds: 0, end_seconds: 1 },
        { name: "plan", begin_seconds: 1, end_seconds: 1.5 },
        { name: "job", begin_seconds: 1.5, end_seconds: 3 },
      ],
    });
    expect(secondsByPhase(twice)).toMatchObject({ job: 2.5, plan: 0.5, finish: 0 });
  });
});

describe("marksOf", () => {
  it("gives round places that reach over the axis", () => {
    expect(marksOf(1)).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1]);
    expect(marksOf(0.037)).toEqual([0, 0.01, 0.02, 0.03]);
    expect(marksOf(47)).toEqual([0, 10, 20, 30, 40]);
    expect(marksOf(0)).toEqual([0]);
  });
});
