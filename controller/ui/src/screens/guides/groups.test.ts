import { expect, test } from "vitest";

import { groupsOf } from "@/screens/guides/groups";

const guide = (name: string, group: string) => ({ name, group, title: name, about: name });

test("guides stand below their group, in the order of the list", () => {
  const [a, b, c] = [guide("a", "Write"), guide("b", "Read"), guide("c", "Write")];
  expect(groupsOf([a, b, c])).toEqual([
    { group: "Write", guides: [a, c] },
    { group: "Read", guides: [b] },
  ]);
  expect(groupsOf([])).toEqual([]);
});
