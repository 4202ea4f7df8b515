import { expect, it } from "vitest";

import { leaderLink } from "@/format/leaderLink";

it("leads to the same screen of the other instance", () => {
  expect(leaderLink("http://b:8420/", "/runs?status=FAILED")).toBe("http://b:8420/ui/runs?status=FAILED");
  expect(leaderLink("https://cbp.example", "/")).toBe("https://cbp.example/ui/");
});

it("leads nowhere but to a web address", () => {
  for (const odd of ["", "b:8420", "javascript:alert(1)"]) expect(leaderLink(odd, "/")).toBeNull();
});
