import { describe, expect, it } from "vitest";

import { garbageInWords, remedy, savedInWords, scrubInWords, scrubShare } from "@/screens/housekeeping/words";

const SCRUB = {
  dataflow: "clicks",
  status: "running" as const,
  ended: false,
  by: "request" as const,
  began_at: null,
  ended_at: null,
  files: 3,
  bytes: 500,
  files_total: 10,
  bytes_total: 2000,
  damages: [],
  error: null,
};

describe("scrubs", () => {
  it("has a share where the whole is known", () => {
    expect(scrubShare(SCRUB)).toBe(25);
    expect(scrubShare({ ...SCRUB, bytes_total: 0 })).toBeNull();
    expect(scrubShare({ ...SCRUB, bytes: 9000 })).toBe(100);
  });

  it("says how much was read", () => {
    expect(scrubInWords(SCRUB)).toBe("Read so far: 3 files, 500 B of 2 kB.");
  });
});

describe("garbage", () => {
  it("counts what goes and not what stays", () => {
    const heap = { place: "state/a", because: "", files: 2, bytes: 10 };
    expect(garbageInWords([{ ...heap, goes: true }, { ...heap, goes: false }])).toBe(
      "2 files (10 B) can be removed now.",
    );
    expect(garbageInWords([{ ...heap, goes: false }])).toBe("No file can be removed now.");
  });
});

describe("remedy", () => {
  it("names the page of damages for a damage", () => {
    expect(remedy("retrying", "a file is damaged", "a")).toEqual(["cbp", "help", "damage"]);
    expect(remedy("stopped", "count: failed", "a")).toEqual(["cbp", "resume", "a"]);
  });
});

describe("compactions", () => {
  const one = { table: "t", stage: "s", epoch: 1, at: "", files_before: 8, files_after: 1, bytes_before: 3000, bytes_after: 1000 };

  it("save files, and bytes where something was deleted and the sizes are known", () => {
    expect(savedInWords(one)).toBe("7 files, 2 kB");
    expect(savedInWords({ ...one, bytes_after: 3100 })).toBe("7 files");
    expect(savedInWords({ ...one, files_before: 2, bytes_before: null })).toBe("1 file");
  });
});
