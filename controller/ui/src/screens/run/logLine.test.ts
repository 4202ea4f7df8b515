import { expect, test } from "vitest";

import { lineOf } from "@/screens/run/logLine";

test("a line shows what happened and the fields that are its own", () => {
  const line = {
    time: "2026-01-01T00:00:00Z",
    level: "info",
    event: "run.committed",
    run: "r1",
    epoch: 3,
    seconds: 0.25,
    keys: ["a", "b"],
    words: "two words",
    empty: null,
    error: { error_code: "disk_full", message: "no space" },
    exception: [{ frames: [] }],
  };
  expect(lineOf(line)).toEqual({
    event: "run.committed",
    fields: 'seconds=0.25 keys=["a","b"] words=two words error=disk_full',
  });
});
