import { expect, it } from "vitest";

import type { Run } from "@/components/runs/phases";
import { groupAttempts } from "@/screens/runs/attempts";

function run(id: string, stage: string, epoch: number): Run {
  return { id, dataflow: "d", stage, epoch } as Run;
}

it("keeps the attempts of an epoch together, and the newest run first", () => {
  const runs = [run("5", "a", 1), run("4", "b", 0), run("3", "a", 1), run("2", "a", 0)];
  expect(groupAttempts(runs).map(({ run, place, of }) => [run.id, place, of])).toEqual([
    ["5", "newest", 2],
    ["3", "earlier", 2],
    ["4", "newest", 1],
    ["2", "newest", 1],
  ]);
});
