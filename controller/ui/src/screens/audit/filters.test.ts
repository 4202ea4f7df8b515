import { describe, expect, it } from "vitest";

import { linkOf, outcomeOf, sinceOf, subjectOf } from "@/screens/audit/filters";

const NOW = new Date("2026-11-23T06:00:59.500Z");

describe("a period", () => {
  it("begins so many hours ago, to the minute", () => {
    expect(sinceOf("1h", NOW)).toBe("2026-11-23T05:00:00.000Z");
    expect(sinceOf("7d", NOW)).toBe("2026-11-16T06:00:00.000Z");
  });
  it("is none for anything else", () => {
    expect(sinceOf("", NOW)).toBeNull();
    expect(sinceOf("x", NOW)).toBeNull();
  });
});

describe("an outcome of the address", () => {
  it("is one that the service knows, or none", () => {
    expect(outcomeOf("failed")).toBe("failed");
    expect(outcomeOf("x")).toBeNull();
  });
});

describe("what an entry was about", () => {
  it("is linked", () => {
    expect(linkOf({ dataflow: "a b", action: "dataflows_pause", target: {} })).toBe("/dataflows/a%20b");
    expect(linkOf({ dataflow: "a", action: "rollbacks_roll_back", target: {} })).toBe("/dataflows/a/recovery");
    expect(linkOf({ dataflow: null, action: "tokens_revoke", target: { token: "ci" } })).toBe("/tokens");
    expect(linkOf({ dataflow: null, action: "runs_cancel", target: { run: "r1" } })).toBeNull();
  });
  it("is shown in words", () => {
    expect(subjectOf({ dataflow: "a", target: { stage: "s" } })).toBe("a, stage s");
    expect(subjectOf({ dataflow: null, target: {} })).toBe("");
  });
});
