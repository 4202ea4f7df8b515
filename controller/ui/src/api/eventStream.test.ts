import { describe, expect, it } from "vitest";

import { concerns, NOTHING, takeMessages, withEvent } from "@/api/eventStream";

describe("takeMessages", () => {
  it("leaves the end of the text until the rest of the message is there", () => {
    const first = takeMessages('id: 1-2\nevent: changed\ndata: {"a":1}\n\n: alive\nid: 3');
    expect(first.messages).toEqual([{ event: "changed", id: "1-2", data: '{"a":1}' }]);
    const second = takeMessages(`${first.rest}-4\n\n`);
    expect(second.messages).toEqual([{ event: "message", id: "3-4", data: "" }]);
    expect(second.rest).toBe("");
  });
});

describe("concerns", () => {
  const known = new Set(["a", "b"]);
  const changed = withEvent(NOTHING, { dataflow: "a" });

  it("asks again for its dataflow and for lists, not for another dataflow", () => {
    expect(concerns(changed, ["stages", "a", "count"], known)).toBe(true);
    expect(concerns(changed, ["dataflows"], known)).toBe(true);
    expect(concerns(changed, ["stages", "b"], known)).toBe(false);
  });

  it("asks again for what cannot be decided, and for nothing that never changes", () => {
    expect(concerns(changed, ["runs", "0123"], known)).toBe(true);
    expect(concerns(changed, ["settings"], known)).toBe(false);
    expect(concerns(NOTHING, ["runs"], known)).toBe(false);
  });

  it("asks again for everything if no dataflow is named", () => {
    expect(concerns(withEvent(changed, { dataflow: "" }), ["stages", "b"], known)).toBe(true);
  });

  it("does not grow with the events", () => {
    let all = NOTHING;
    for (let n = 0; n < 10_000; n += 1) all = withEvent(all, { dataflow: `d${n % 3}` });
    expect(all.dataflows.size).toBe(3);
  });
});
