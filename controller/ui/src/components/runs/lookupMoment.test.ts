import { expect, test } from "vitest";

import { momentWords } from "@/components/runs/lookupMoment";

test("a moment is an epoch of the table, or none", () => {
  expect(momentWords({ epoch: 3, version: 7 })).toBe("epoch 3 (version 7)");
  expect(momentWords({ epoch: -1, version: 0 })).toBe("before epoch 0 (version 0)");
  expect(momentWords(undefined)).toBe("no run yet");
});
