import { expect, test } from "vitest";

import { plannedGraph } from "@/screens/register/plannedGraph";

test("every source, stage and result is a node; a loop leads back to its stage", () => {
  const graph = plannedGraph({
    sources: ["pages"],
    stages: ["rank", "top"],
    flows: { pages: "url STRING", "rank.ranks": "n INT", "rank.messages": "n INT", "top.best": "n INT" },
    wiring: { rank: { pages: "pages", messages: "rank.messages" }, top: { ranks: "rank.ranks" } },
    lookups: { top: { names: "rank.kept" } },
  });
  expect(graph.nodes.map(({ id }) => id)).toEqual([
    "source:pages",
    "planned:rank",
    "planned:top",
    "result:top.best",
  ]);
  expect(graph.edges.map(({ from, to, kind, flow }) => [from, to, kind, flow])).toEqual([
    ["source:pages", "planned:rank", "flow", "pages"],
    ["planned:rank", "planned:rank", "flow", "rank.messages"],
    ["planned:rank", "planned:top", "flow", "rank.ranks"],
    ["planned:rank", "planned:top", "lookup", "rank.kept"],
    ["planned:top", "result:top.best", "flow", "top.best"],
  ]);
});
