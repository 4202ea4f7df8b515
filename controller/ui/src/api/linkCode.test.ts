import { describe, expect, it } from "vitest";

import { SIGN_IN_PATH, takeLinkCode } from "@/api/linkCode";

function take(pathname: string, hash: string) {
  const addresses: unknown[] = [];
  const history = { replaceState: (_state: unknown, _title: string, to?: unknown) => addresses.push(to) };
  return { code: takeLinkCode({ pathname, hash }, history as never), addresses };
}

describe("a sign-in link", () => {
  it("gives its code, and leaves the address", () => {
    expect(take(SIGN_IN_PATH, "#code=a-b_1")).toEqual({ code: "a-b_1", addresses: ["/ui/"] });
  });

  it("without a code leaves the address, too", () => {
    expect(take(SIGN_IN_PATH, "")).toEqual({ code: "", addresses: ["/ui/"] });
  });

  it("is at one address only", () => {
    expect(take("/ui/dataflows", "#code=x")).toEqual({ code: "", addresses: [] });
  });
});
