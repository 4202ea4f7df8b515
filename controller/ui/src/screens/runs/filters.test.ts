import { expect, it } from "vitest";

import { commandOf, NO_FILTERS, queryOf } from "@/screens/runs/filters";

const NOW = new Date("2026-01-02T00:00:00Z");

it("turns an age into a time, and leaves out what is not chosen", () => {
  const asked = queryOf({ ...NO_FILTERS, since: "6h", status: "FAILED" }, NOW);
  expect(asked.since).toBe("2026-01-01T18:00:00.000Z");
  expect(asked.status).toBe("FAILED");
  expect(asked.dataflow).toBeUndefined();
  expect(queryOf({ ...NO_FILTERS, since: "nonsense" }, NOW).since).toBeUndefined();
});

it("takes two moments, either of which can be missing or wrong", () => {
  const asked = queryOf({ ...NO_FILTERS, since: "custom", from: "2026-01-01T10:00", to: "x" }, NOW);
  expect(asked.since).toBe(new Date("2026-01-01T10:00").toISOString());
  expect(asked.until).toBeUndefined();
});

it("names the command that lists the same", () => {
  expect(commandOf({ ...NO_FILTERS, status: "FAILED", since: "6h", dataflow: "clicks" })).toEqual(
    ["cbp", "runs", "--dataflow", "clicks", "--failed", "--since", "6h"],
  );
  expect(commandOf(NO_FILTERS)).toEqual(["cbp", "runs"]);
});
