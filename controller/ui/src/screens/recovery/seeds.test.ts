import { expect, test } from "vitest";

import { seedsOf } from "@/screens/recovery/seeds";

test("sources without a path are left out, and blanks around one", () => {
  expect(seedsOf({})).toEqual([]);
  expect(seedsOf({ clicks: " /archive/a=b ", urls: "  " })).toEqual(["clicks=/archive/a=b"]);
});
