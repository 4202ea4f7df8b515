import { describe, expect, it } from "vitest";

import { TONES } from "@/components/tones";

describe("TONES", () => {
  it("gives no two tones one icon or one colour", () => {
    const looks = Object.values(TONES);
    expect(new Set(looks.map(({ icon }) => icon)).size).toBe(looks.length);
    expect(new Set(looks.map(({ color }) => color)).size).toBe(looks.length);
  });
});
