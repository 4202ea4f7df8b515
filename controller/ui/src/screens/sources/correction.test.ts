import { expect, it } from "vitest";

import { correctionInWords } from "@/screens/sources/correction";

it("a correction says how many records and groups it concerns", () => {
  const made = { records_came: 1, records_gone: 2, groups: { count: 3, top: 1 } };
  expect(correctionInWords(made)).toBe("1 record would be added, 2 would be taken back; 3 groups of count, 1 group of top would be recomputed.");
  expect(correctionInWords({ records_came: 0, records_gone: 0, groups: { count: 0 } })).toContain("Nothing");
});
