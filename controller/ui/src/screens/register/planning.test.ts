import { describe, expect, it } from "vitest";

import { becomes, losses, losesState, skippedInWords, viewsInWords } from "@/screens/register/planning";

const NODE = { name: "count", kind: "kept", state: "kept", buckets: null, columns: {}, differences: [], settings: [], rewired: [], views: {}, emptied: [] };
const QUEUE = {
  stage: "count",
  input: "urls",
  dropped_increments: 2,
  dropped_records: 7,
  queued_increments: 0,
  queued_records: 0,
  queued_bytes: 0,
  skipped_increments: 0,
};

describe("losses", () => {
  it("names the states and the increments that are lost, and nothing else", () => {
    const change = {
      name: "clicks", version: 2, changed: true, done: false, sources: [], meanwhile: [], refused: [],
      rebuild: "",
      stages: [NODE, { ...NODE, name: "old", kind: "removed" }],
      queues: [QUEUE, { ...QUEUE, dropped_increments: 0 }],
    };
    const places = [
      { place: "state/old.a", files: 1, bytes: 1500 },
      { place: "state/older.a", files: 1, bytes: 9 },
    ];
    expect(losses(change, [])[0]).toBe("The state of old is lost.");
    expect(losses(change, places)).toEqual([
      "The state of old is lost (1.5 kB on disk).",
      "2 increments (7 records) queued at count.urls are dropped.",
    ]);
  });
});

describe("skippedInWords", () => {
  it("says how many increments came before an input that begins with the next one", () => {
    expect(skippedInWords(QUEUE)).toBe("");
    const words = skippedInWords({ ...QUEUE, skipped_increments: 3 });
    expect(words).toBe("count.urls reads new input only, not the 3 increments before it.");
  });
});

describe("becomes", () => {
  it("speaks of the state where there is one", () => {
    expect(becomes(NODE)).toBe("kept, state kept");
    expect(becomes({ ...NODE, state: "none" })).toBe("kept");
    expect(losesState({ ...NODE, kind: "replaced", state: "new" })).toBe(true);
    expect(losesState({ ...NODE, kind: "added", state: "new" })).toBe(false);
  });
});

describe("viewsInWords", () => {
  it("says with which records each new view begins", () => {
    const node = { ...NODE, views: { totals: "filled", top: "empty" } };
    expect(viewsInWords(node)).toEqual([
      "view totals begins with the last record of each key of its flow",
      "view top begins empty, and gets the groups that are called from then on",
    ]);
    expect(viewsInWords(NODE)).toEqual([]);
  });
});
