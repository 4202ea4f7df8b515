import { expect, it } from "vitest";

import { factsOf, nextScreens, nextStep } from "@/components/runs/errorFacts";

it("names cause and line first, and leaves out what is not known", () => {
  const error = {
    error_code: "author_code_failed",
    details: { stage: "s", place: "a.py:7", cause: "ValueError: x", key: null, inputs: { a: ["r"] } },
  };
  expect(factsOf(error).map((fact) => fact.name)).toEqual(["Cause", "Line", "Stage", "First records"]);
  expect(factsOf({ error_code: "x" })).toEqual([]);
  const dropped = { error_code: "x", details: { origin: "the record is from a.jsonl, line 3" } };
  expect(factsOf(dropped)).toEqual([{ name: "Origin", value: "the record is from a.jsonl, line 3" }]);
});

it("has a next step for every code", () => {
  expect(nextStep("author_code_failed")).toContain("fix the line above, register the dataflow again");
  expect(nextStep("never_heard_of")).not.toBe("");
});

it("leads to where the next step is done", () => {
  expect(nextScreens("author_code_failed").map(({ path }) => path)).toEqual(["versions", "recovery"]);
  expect(nextScreens("disk_full")).toEqual([]);
});
