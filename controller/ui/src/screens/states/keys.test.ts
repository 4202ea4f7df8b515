import { describe, expect, it } from "vitest";

import { shellCommand } from "@/format/shell";
import { bodyOfCorrection } from "@/screens/states/correctionBody";
import { keyArguments, keyFromAddress, keyIntoAddress, keyOfForm, keyOfRecord, keyQuery } from "@/screens/states/keys";

const COLUMNS = [
  { name: "url", type: "STRING", nullable: true },
  { name: "site", type: "BIGINT", nullable: true },
];

describe("a key in the address", () => {
  it("comes back as it was, with null, empty and odd text", () => {
    for (const key of [{ url: "", site: null }, { url: "a&b=ü <script>", site: "9007199254740993" }]) {
      const address = keyIntoAddress(key, new URLSearchParams("tab=x&k.url=old&null=site&history=h1"));
      expect(keyFromAddress(COLUMNS, address)).toEqual(key);
      expect(address.get("tab")).toBe("x");
      expect(address.has("history")).toBe(false);
    }
  });

  it("is none while a column is missing", () => {
    expect(keyFromAddress(COLUMNS, new URLSearchParams("k.url=a"))).toBeNull();
    expect(keyFromAddress([], new URLSearchParams())).toBeNull();
  });

  it("has further columns only where they are given", () => {
    const more = [{ name: "rank", type: "INT", nullable: true }];
    const address = (text: string) => keyFromAddress(COLUMNS, new URLSearchParams(text), more);
    expect(address("k.url=a&k.site=1")).toEqual({ url: "a", site: "1" });
    expect(address("k.url=a&k.site=1&k.rank=2")).toEqual({ url: "a", site: "1", rank: "2" });
    expect(address("k.url=a&k.site=1&null=rank")).toEqual({ url: "a", site: "1", rank: null });
    expect(address("k.url=a&k.rank=2")).toBeNull();
    expect(keyOfForm(COLUMNS, more, { url: "a", rank: "" })).toEqual({ url: "a", site: "" });
    expect(keyOfForm(COLUMNS, more, { url: "a", site: "1", rank: null })).toEqual({ url: "a", site: "1", rank: null });
  });

  it("asks the service for null by name", () => {
    expect(keyQuery({ url: null, site: "1" })).toEqual([["_null", "url"], ["site", "1"]]);
  });

  it("is made of a record without losing digits", () => {
    expect(keyOfRecord(COLUMNS, { url: "a", site: 9007199254740993n, n: 1 })).toEqual({ url: "a", site: "9007199254740993" });
    expect(keyOfRecord(COLUMNS, { url: null, site: 1 })).toEqual({ url: null, site: "1" });
  });

  it("is quoted for a shell", () => {
    expect(shellCommand(keyArguments({ url: "it's", site: null }))).toBe("'url=it'\\''s' --null site");
  });
});

describe("the body of a correction", () => {
  it("parses nested columns only", () => {
    const columns = [...COLUMNS, { name: "tags", type: "ARRAY<STRING>", nullable: true }];
    const body = bodyOfCorrection({ url: "a" }, { site: "9007199254740993", tags: '["x"]', note: "[1]" }, columns);
    expect(body).toBe('{"corrections":[{"key":{"url":"a"},"set":{"site":"9007199254740993","tags":["x"],"note":"[1]"}}]}');
    expect(bodyOfCorrection({ url: null }, null, columns)).toBe('{"corrections":[{"key":{"url":null},"records":[]}]}');
  });
});
