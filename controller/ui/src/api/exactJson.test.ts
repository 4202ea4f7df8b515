import { describe, expect, it } from "vitest";

import { parseExact, writeExact } from "@/api/exactJson";

describe("parseExact", () => {
  it("keeps every digit of a large whole number", () => {
    const text = '{"n":9007199254740993,"m":[-9223372036854775808,1,2.5],"s":"9007199254740993"}';
    expect(writeExact(parseExact(text))).toBe(text);
    expect((parseExact(text) as { n: unknown }).n).toBe(9007199254740993n);
  });

  it("leaves other numbers alone", () => {
    expect(parseExact("[1, 0.1, 1e300, null, true]")).toEqual([1, 0.1, 1e300, null, true]);
  });

  it("writes what JSON has", () => {
    expect(writeExact({ a: undefined, "q\"": "<b>", c: null })).toBe('{"q\\"":"<b>","c":null}');
  });
});
