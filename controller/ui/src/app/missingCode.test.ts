import { expect, it } from "vitest";

import { isMissingCode, mayReload } from "@/app/missingCode";

it("separates code that is missing from code that fails", () => {
  expect(isMissingCode(new TypeError("Failed to fetch dynamically imported module: http://x/a.js"))).toBe(true);
  expect(isMissingCode(new Error("Unable to preload CSS for /ui/assets/a.css"))).toBe(true);
  expect(isMissingCode(new TypeError("x is not a function"))).toBe(false);
  expect(isMissingCode("dynamically imported module")).toBe(false);
});

it("loads the page anew once, not for ever", () => {
  expect(mayReload(null, 1_000_000)).toBe(true);
  expect(mayReload("999000", 1_000_000)).toBe(false);
  expect(mayReload("900000", 1_000_000)).toBe(true);
  expect(mayReload("nonsense", 1_000_000)).toBe(true);
});
