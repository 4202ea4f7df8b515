import { expect, test } from "vitest";

import { outcomeOfTest } from "@/screens/alerts/words";

test("a test names the channels that worked, or those that failed and why", () => {
  const hook = { channel: "webhook a", error: null };
  const mail = { channel: "e-mail b", error: "OSError: refused" };
  expect(outcomeOfTest([])).toContain("No channel");
  expect(outcomeOfTest([hook])).toBe("Sent by webhook a");
  expect(outcomeOfTest([hook, mail])).toBe("e-mail b failed: OSError: refused");
});
