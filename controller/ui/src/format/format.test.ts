import { describe, expect, test } from "vitest";

import {
  formatBytes,
  formatCompact,
  formatCount,
  formatCounted,
  formatRelative,
  formatSeconds,
  formatShare,
} from "@/format/format";

describe("format", () => {
  test.each([
    [0, "0 B"],
    [999, "999 B"],
    [1000, "1 kB"],
    [999_600, "1 MB"],
    [1_234_567, "1.2 MB"],
    [12_345_678, "12.3 MB"],
    [123_456_789, "123 MB"],
    [null, "–"],
  ])("a size of %s is %s", (value, text) => {
    expect(formatBytes(value)).toBe(text);
  });

  test.each([
    [0, "0 s"],
    [0.0034, "3.4 ms"],
    [0.25, "250 ms"],
    [1.234, "1.2 s"],
    [59.6, "1 min"],
    [61, "1 min 1 s"],
    [3599.8, "1 h"],
    [7384, "2 h 3 min"],
    [200_000, "2 d 8 h"],
    [undefined, "–"],
  ])("a duration of %s is %s", (value, text) => {
    expect(formatSeconds(value)).toBe(text);
  });

  test.each([
    [0, "just now"],
    [12, "12 s ago"],
    [-90, "in 2 min"],
    [3599, "1 h ago"],
    [172_800, "2 d ago"],
  ])("a moment %s seconds ago is %s", (seconds, text) => {
    const now = new Date("2026-11-23T05:00:00Z");
    expect(formatRelative(new Date(now.getTime() - seconds * 1000), now)).toBe(text);
  });

  test("counts have separators, and a noun in the right number", () => {
    expect(formatCount(1_234_567)).toBe("1,234,567");
    expect(formatCompact(1_234_567)).toBe("1.23M");
    expect(formatCounted(1, "increment")).toBe("1 increment");
    expect(formatCounted(2000, "increment")).toBe("2,000 increments");
    expect(formatShare(1, 8)).toBe("12.5%");
    expect(formatShare(0, 0)).toBe("–");
  });
});
