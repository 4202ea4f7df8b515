import { expect, test } from "vitest";

import { fileNamesOf } from "@/format/fileNames";

test.each([
  [{ files: ["a", "b"] }, ["a", "b"]],
  [{ files: ["a", "b"], file_count: 2 }, ["a", "b"]],
  [{ files: ["a", "b"], file_count: 200 }, ["a", "b", "198 more"]],
  [{ run: "r" }, []],
])("%j names %j", (origin, names) => {
  expect(fileNamesOf(origin)).toEqual(names);
});
