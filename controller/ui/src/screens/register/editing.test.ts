import { describe, expect, it } from "vitest";

import { mistakesOf, offsetOf, splitAt, withStage } from "@/screens/register/editing";

const URL_COUNT = {
  name: "url_count",
  package: "cbp",
  summary: "",
  description: "",
  parameters: {},
  problem: null,
  ports: {
    inputs: [{ name: "urls", columns: "url STRING", key: "url" }],
    outputs: [],
    states: [],
  },
};
const STAGE = "  url_count:\n    translator: url_count\n    inputs:\n      urls: FLOW  # url STRING\n";

describe("withStage", () => {
  it("adds to the stages, wherever they stand", () => {
    expect(withStage("name: a\nstages:\n  b: 1\npublish: {}\n", URL_COUNT)).toBe(
      `name: a\nstages:\n  b: 1\n${STAGE}publish: {}\n`,
    );
    expect(withStage("name: a\nstages: {}", URL_COUNT)).toBe(`name: a\nstages:\n${STAGE}`);
    expect(withStage("", URL_COUNT)).toBe(`stages:\n${STAGE}`);
  });

  it("gives a second stage another name", () => {
    expect(withStage(withStage("", URL_COUNT), URL_COUNT)).toContain("\n  url_count_2:\n");
  });
});

describe("places", () => {
  it("are inside the text, whatever the service says", () => {
    expect(offsetOf("ab\ncd", 2, 2)).toBe(4);
    expect(offsetOf("ab\ncd", 9, 9)).toBe(5);
    expect(offsetOf("ab\ncd", 0, 0)).toBe(0);
  });

  it("mark one word", () => {
    expect(splitAt("  count: {translator: x}", 13)).toEqual(["  count: {tr", "anslator", ": x}"]);
    expect(splitAt("a: 'b c' ", 4)).toEqual(["a: ", "'b c'", " "]);
    expect(splitAt("", 4)).toEqual(["", "", ""]);
  });
});

describe("mistakesOf", () => {
  it("takes what is there", () => {
    expect(mistakesOf({})).toEqual([]);
    expect(mistakesOf({ mistakes: [{ code: "a", where: "b", message: "c" }] })).toEqual([
      { code: "a", where: "b", message: "c", line: 0, column: 0 },
    ]);
  });
});
