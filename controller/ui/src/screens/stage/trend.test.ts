import { expect, it } from "vitest";

import type { Run } from "@/components/runs/phases";
import { indexHitRate, trendOf } from "@/screens/stage/trend";

function run(id: string, figures: Record<string, number>): Run {
  return {
    id,
    seconds: 3,
    figures,
    phases: [
      { name: "plan", begin_seconds: 0, end_seconds: 1 },
      { name: "job", begin_seconds: 1, end_seconds: 3 },
    ],
  } as Run;
}

it("goes from the oldest to the newest, and takes the stage's own figures", () => {
  const bars = trendOf([run("2", { groups: 9, "s/groups": 4 }), run("1", { groups: 7 })], "s");
  expect(bars.map((bar) => [bar.run.id, bar.groups])).toEqual([["1", 7], ["2", 4]]);
  expect(bars[0]?.parts).toEqual([{ name: "plan", seconds: 1 }, { name: "job", seconds: 2 }]);
});

it("weighs the look-ups of all runs alike", () => {
  const runs = [run("2", { lookups_index: 9, lookups_scan: 0 }), run("1", { lookups_scan: 1 })];
  expect(indexHitRate(runs)).toBe(0.9);
  expect(indexHitRate([run("1", {})])).toBeUndefined();
});
