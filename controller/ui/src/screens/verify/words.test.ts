import { describe, expect, it } from "vitest";

import { comparedRows } from "@/screens/verify/words";

const DIFFERENCE = {
  table: "state/count.counts",
  number: 0,
  columns: ["url", "n"],
  key_columns: ["url"],
  key: ["'/'"],
  expected: [["'/'", "3"]],
  found: [["'/'", "999"]],
};

describe("comparedRows", () => {
  it("marks the values that the other side lacks, and no others", () => {
    expect(comparedRows(DIFFERENCE)).toEqual([
      {
        side: "expected",
        cells: [
          { column: "url", value: "'/'", differs: false },
          { column: "n", value: "3", differs: true },
        ],
      },
      {
        side: "actual",
        cells: [
          { column: "url", value: "'/'", differs: false },
          { column: "n", value: "999", differs: true },
        ],
      },
    ]);
  });

  it("has a row without cells for a side without records", () => {
    expect(comparedRows({ ...DIFFERENCE, found: [] })[1]).toEqual({ side: "actual", cells: [] });
  });
});
