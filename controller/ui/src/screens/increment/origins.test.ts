import { expect, test } from "vitest";

import { originsOf, RUNS_MAX } from "@/screens/increment/origins";

const file = (index: number) => ({
  input: "words", flow: "visits", index, run: null, origin: { files: [`${index}.jsonl`] },
});
const written = (flow: string, index: number, run: string) => ({ input: "in", flow, index, run, origin: { run } });

test("an increment is followed back through its runs to the files", async () => {
  const causes: Record<string, ReturnType<typeof file | typeof written>[]> = {
    again: [written("keep.newest", 4, "keep")],
    keep: [file(7), file(8)],
  };
  const { origins, cut } = await originsOf("again", async (run) => causes[run] ?? []);
  expect(cut).toBe(false);
  expect(origins.map(({ flow, index, steps, files }) => [flow, index, steps, ...files])).toEqual([
    ["keep.newest", 4, 1],
    ["visits", 7, 2, "7.jsonl"],
    ["visits", 8, 2, "8.jsonl"],
  ]);
});

test("a loop is followed for some runs only, each once, and says so", async () => {
  const asked: string[] = [];
  const { origins, cut } = await originsOf("run-100", async (run) => {
    asked.push(run);
    const number = Number(run.slice(4));
    return [written("rank.messages", number - 1, `run-${number - 1}`)];
  });
  expect(cut).toBe(true);
  expect(asked).toHaveLength(RUNS_MAX);
  expect(new Set(asked).size).toBe(RUNS_MAX);
  expect(origins).toHaveLength(RUNS_MAX);
});
