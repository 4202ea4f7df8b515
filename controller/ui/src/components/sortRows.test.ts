import { expect, test } from "vitest";

import { parseSort, sortRows, toggleSort } from "@/components/sortRows";

test("rows without a value come last, in both directions", () => {
  const rows = [{ n: 2 }, { n: null }, { n: 10 }];
  expect(sortRows(rows, (row) => row.n, false).map((row) => row.n)).toEqual([2, 10, null]);
  expect(sortRows(rows, (row) => row.n, true).map((row) => row.n)).toEqual([10, 2, null]);
});

test("text with numbers is sorted as people count", () => {
  expect(sortRows(["s10", "s9"], (row) => row, false)).toEqual(["s9", "s10"]);
});

test("a second click turns the order round", () => {
  expect(toggleSort("", "lag")).toBe("lag");
  expect(toggleSort("lag", "lag")).toBe("-lag");
  expect(toggleSort("-lag", "lag")).toBe("lag");
  expect(parseSort("-lag")).toEqual({ id: "lag", descending: true });
});
