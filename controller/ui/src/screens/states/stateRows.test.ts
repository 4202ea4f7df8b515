import { expect, it } from "vitest";

import { kindInWords, keyInWords, stateRows } from "@/screens/states/stateRows";

const DECLARED = { name: "top", columns: "", key: "site", second_key: "url", kind: "view", keeps: false, grouping: "" } as const;
const SPREAD = { buckets: 1, used: 1, rows: 3, dead: 0, bytes: 9, files: 1, rows_mean: 3, rows_max: 3, fullest: 0, skew: 1, histogram: [], bin_rows: 1 };

it("joins what is declared with the page of sizes, in its order", () => {
  const stages = [{ name: "a", states: [DECLARED] }, { name: "b", states: [{ ...DECLARED, name: "kept" }] }];
  const sizes = [{ stage: "b", state: "kept", ...SPREAD }, { stage: "c", state: "new", ...SPREAD }];
  expect(stateRows(stages, sizes).map((row) => [row.stage, row.name, row.declared?.kind, row.size?.rows])).toEqual([
    ["b", "kept", "view", 3],
    ["c", "new", undefined, 3],
  ]);
  expect(stateRows(stages, undefined).map((row) => [row.stage, row.name, row.size])).toEqual([
    ["a", "top", undefined],
    ["b", "kept", undefined],
  ]);
});

it("says what a state is, and what names its records", () => {
  expect(kindInWords({ kind: "view", keeps: false })).toBe("view");
  expect(kindInWords({ kind: "state", keeps: true })).toBe("state, keeps records");
  expect(keyInWords(DECLARED)).toBe("site, url");
  expect(keyInWords({ key: "url", second_key: "" })).toBe("url");
});
