import { describe, expect, it } from "vitest";

import { isNumeric, parseColumns } from "@/format/columns";

describe("parseColumns", () => {
  it("keeps types with commas whole", () => {
    expect(parseColumns("a DECIMAL(10,2) NOT NULL, b MAP<STRING,ARRAY<INT>>, c STRUCT<x: INT, y: INT>")).toEqual([
      { name: "a", type: "DECIMAL(10,2)", nullable: false },
      { name: "b", type: "MAP<STRING,ARRAY<INT>>", nullable: true },
      { name: "c", type: "STRUCT<x: INT, y: INT>", nullable: true },
    ]);
  });

  it("reads no columns of nothing", () => {
    expect(parseColumns("")).toEqual([]);
  });

  it("separates numbers from text", () => {
    expect(parseColumns("n BIGINT, d DECIMAL(3,1), s STRING, i INTERVAL").map(isNumeric)).toEqual([true, true, false, false]);
  });
});
