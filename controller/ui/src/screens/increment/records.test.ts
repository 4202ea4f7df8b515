import { expect, it } from "vitest";

import { parseExact, textOf } from "@/screens/increment/records";

it("keeps every digit of a BIGINT", () => {
  const parsed = parseExact('{"items":[{"n":9007199254740993,"m":-9223372036854775808,"k":7}]}');
  expect(parsed).toEqual({ items: [{ n: "9007199254740993", m: "-9223372036854775808", k: 7 }] });
});

it("shows a double as it was written, and nothing as null", () => {
  expect(parseExact('{"x":1.0,"y":0.1}')).toEqual({ x: "1.0", y: 0.1 });
  expect(textOf(null)).toBe("null");
  expect(textOf({ a: [1, "b"] })).toBe('{"a":[1,"b"]}');
});
