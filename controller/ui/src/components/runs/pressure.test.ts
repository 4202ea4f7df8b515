import { expect, it } from "vitest";

import { levelOf, pressureOf } from "@/components/runs/pressure";

it("takes the limit that is nearest", () => {
  const waiting = { increments: 10, records: 90, bytes: 5 };
  const pressure = pressureOf(waiting, { increments: 1000, records: 100, bytes: null });
  expect(pressure).toMatchObject({ by: "records", share: 0.9 });
});

it("knows an input without a limit", () => {
  expect(pressureOf({ increments: 9, records: 9, bytes: 9 }, undefined)).toBeNull();
});

it("has NiFi's thresholds, in words", () => {
  const shares = [0, 0.6, 0.61, 0.85, 0.86, 0.99, 1, 2];
  expect(shares.map((share) => levelOf(share).word)).toEqual([
    "has room", "has room", "filling", "filling", "nearly full", "nearly full",
    "full, so the stage that writes to it waits", "full, so the stage that writes to it waits",
  ]);
});
