import { describe, expect, it } from "vitest";

import { followed, isOpen, outcomeOf, reasonText, type Sending } from "@/screens/sources/upload";

describe("reasonText", () => {
  it("names the place and leaves out the file", () => {
    expect(reasonText({ message: "f.jsonl, line 2: no", cause: "no", line: 2, column: "url" })).toBe("line 2, column url: no");
    expect(reasonText({ message: "f.jsonl: gone", cause: "gone", line: null })).toBe("f.jsonl: gone");
    expect(reasonText({ code: "file_gone" })).toBe("file_gone");
  });
});

describe("outcomeOf", () => {
  it("is in words for every end of an upload", () => {
    const sending: Sending = { id: "1", name: "f", bytes: 1, sent: 0 };
    const ended = (status: string) => outcomeOf({ ...sending, claim: { status } as NonNullable<Sending["claim"]> }).word;
    expect(outcomeOf(sending).word).toBe("Sending");
    expect(["claimed", "duplicate", "quarantined"].map(ended)).toEqual(["Received", "Duplicate", "In quarantine"]);
  });
});

describe("followed", () => {
  it("shows what became of a file since it was received, and leaves others alone", () => {
    const claim = (id: string, status: string) => ({ id, status }) as NonNullable<Sending["claim"]>;
    const sendings: Sending[] = ["a", "b"].map((id) => ({ id, name: id, bytes: 1, sent: 1, claim: claim(id, "claimed") }));
    const shown = followed([...sendings, { id: "c", name: "c", bytes: 1, sent: 0 }], [claim("a", "quarantined"), claim("z", "accepted")]);
    expect(shown.map((one) => outcomeOf(one).word)).toEqual(["In quarantine", "Received", "Sending"]);
    expect(shown.map(isOpen)).toEqual([false, true, false]);
  });
});
