import { expect, test } from "vitest";

import type { Frame } from "@/screens/graph/boxes";
import { goesBack, layoutOf, partsOf } from "@/screens/graph/layout";
import {
  collapse,
  framesOf,
  graphOf,
  groupsOf,
  lookupWords,
  lookupsOf,
  neighbourhood,
  stateOf,
  structureOf,
  wordsOf,
  type Detail,
  type Stage,
} from "@/screens/graph/model";

function stage(name: string, changes: Partial<Stage> = {}): Stage {
  return {
    name,
    runs_with: name,
    translator: "t",
    buckets: 2,
    state: "waiting",
    waiting: "",
    priority: "normal",
    error: null,
    inputs: {},
    lookups: [],
    epoch: 0,
    lag_seconds: null,
    failures: 0,
    retry_at: null,
    last_success_at: null,
    runnable: "all",
    memo: null,
    cycle: [],
    turns: 0,
    queues: [],
    outputs: {},
    keep: {},
    states: [],
    rebuilding: null,
    newer_files: [],
    paused_itself: false,
    set_aside: 0,
    ...changes,
  };
}

function detail(stages: Stage[]): Detail {
  const source = {
    name: "pages",
    columns: "",
    format: "jsonl",
    options: {},
    keep: { hours: 1, bytes: 0, increments: 0, by: "service" as const },
    location: "",
    duplicates: "accept",
  };
  return { sources: [source], stages } as unknown as Detail;
}

/** pages -> a -> (b <-> c), where d runs with b. */
const LOOP = detail([
  stage("a", { inputs: { pages: "pages" }, outputs: { "a.out": "x INT" } }),
  stage("b", { inputs: { new: "a.out", back: "c.out" }, outputs: { "b.out": "x INT" }, cycle: ["b", "c"] }),
  stage("c", { inputs: { in: "b.out" }, outputs: { "c.out": "x INT" }, cycle: ["b", "c"] }),
  stage("d", { inputs: { in: "a.out" }, outputs: { "d.result": "x INT" }, runs_with: "a" }),
]);

test("a dataflow that cannot be loaded is drawn with what is known of it", () => {
  const broken = { ...detail([stage("a", { inputs: { pages: "pages", rows: "gone.out" } })]), sources: [] };
  const graph = graphOf(broken);
  expect(graph.nodes.map(({ kind, name }) => `${kind} ${name}`).sort()).toEqual(["source gone.out", "source pages", "stage a"]);
  expect(layoutOf(graph).nodes.size).toBe(3);
});

test("every input is an edge, and an output without a reader is a result", () => {
  const graph = graphOf(LOOP);
  expect(graph.edges.map(({ from, to }) => `${from} ${to}`).sort()).toEqual([
    "source:pages stage:a",
    "stage:a stage:b",
    "stage:a stage:d",
    "stage:b stage:c",
    "stage:c stage:b",
    "stage:d result:d.result",
  ]);
  expect([...framesOf(LOOP.stages)]).toEqual(["a"]);
});

test("loops, runs and, in a large graph, names that begin alike are groups", () => {
  expect([...groupsOf(LOOP.stages)]).toEqual([
    ["loop of b", ["b", "c"]],
    ["run of a", ["a", "d"]],
  ]);
  const many = Array.from({ length: 80 }, (_, at) => stage(`load_${at}`));
  expect([...groupsOf(many).keys()]).toEqual(["load_…"]);
  expect(groupsOf(many.slice(0, 20)).size).toBe(0);
});

test("a folded group is one box with the edges that leave it and its most notable state", () => {
  const graph = graphOf(detail(LOOP.stages.map((one) => (one.name === "c" ? { ...one, state: "stopped" as const } : one))));
  const folded = collapse(graph, new Map([["loop of b", ["b", "c"]]]));
  const box = folded.nodes.find(({ kind }) => kind === "group");
  expect(box?.stages.map(({ name }) => name)).toEqual(["b", "c"]);
  expect(box && stateOf(box)).toBe("stopped");
  expect(folded.edges.filter(({ from, to }) => from === box?.id || to === box?.id)).toHaveLength(1);
});

test("a neighbourhood goes along edges in both directions, step by step", () => {
  const graph = graphOf(LOOP);
  const near = neighbourhood(graph, "stage:c", 1);
  expect(near.nodes.map(({ id }) => id).sort()).toEqual(["stage:b", "stage:c"]);
  expect(neighbourhood(graph, "stage:c", 2).nodes.map(({ id }) => id).sort()).toEqual([
    "stage:a",
    "stage:b",
    "stage:c",
  ]);
});

test("the layout goes from left to right, frames hold their stages, and a loop goes back", () => {
  const graph = graphOf(LOOP);
  const { nodes, frames } = layoutOf(graph);
  const box = (id: string) => nodes.get(id)!;
  expect(goesBack(box("source:pages"), box("stage:a"))).toBe(false);
  expect(goesBack(box("stage:c"), box("stage:b"))).toBe(true);
  const [frame] = frames as [Frame];
  for (const id of ["stage:a", "stage:d"]) {
    expect(box(id).x).toBeGreaterThanOrEqual(frame.x);
    expect(box(id).x + box(id).width).toBeLessThanOrEqual(frame.x + frame.width);
  }
  expect(box("stage:b").y + box("stage:b").height < frame.y || box("stage:b").x > frame.x + frame.width || box("stage:b").y > frame.y + frame.height).toBe(true);
});

test("figures that change leave the places alone", () => {
  const busy = detail(LOOP.stages.map((one) => ({ ...one, epoch: 9, state: "running" as const })));
  expect(structureOf(graphOf(busy))).toBe(structureOf(graphOf(LOOP)));
});

test("a stage says why it does not run", () => {
  expect(wordsOf(stage("a"))).toBe("can start at the next tick");
  expect(wordsOf(stage("a", { waiting: "nothing at pages" }))).toBe("nothing at pages");
  expect(wordsOf(stage("a", { state: "set_aside", set_aside: 2, waiting: "nothing at pages" }))).toBe(
    "2 records set aside, until you give them back",
  );
  expect(wordsOf(stage("a", { state: "stopped", error: { message: "boom" } }))).toBe("boom");
  expect(wordsOf(stage("a", { state: "running", epoch: 4 }))).toBe("runs epoch 4");
});

test("parts that nothing connects stand in rows and do not overlap", () => {
  const many = detail(
    Array.from({ length: 40 }, (_, at) => stage(`s${at}`, { outputs: { [`s${at}.out`]: "x INT" } })),
  );
  many.sources.length = 0;
  const graph = graphOf(many);
  expect(partsOf(graph)).toHaveLength(40);
  const boxes = [...layoutOf(graph).nodes.values()];
  const width = Math.max(...boxes.map((box) => box.x + box.width));
  const height = Math.max(...boxes.map((box) => box.y + box.height));
  expect(width / height).toBeGreaterThan(1);
  expect(width / height).toBeLessThan(4);
  for (const [at, a] of boxes.entries()) {
    for (const b of boxes.slice(at + 1)) {
      const apart = a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y;
      expect(apart).toBe(true);
    }
  }
});

test("a look-up is an edge in which nothing waits; one that wakes is the edge of its changes", () => {
  const by = { columns: "", by: ["k"], key: [] };
  const graph = graphOf(
    detail([
      stage("keep", { inputs: { rows: "pages" }, outputs: { "keep.now": "x INT" } }),
      stage("join", {
        inputs: { orders: "pages", now_changes: "keep.now" },
        lookups: [
          { ...by, name: "now", table: "keep.now", wakes: true },
          { ...by, name: "old", table: "keep.old", wakes: false },
        ],
      }),
    ]),
  );
  expect(lookupsOf(graph).map(({ id, kind, from, to }) => [id, kind, from, to])).toEqual([
    ["join.now_changes", "both", "stage:keep", "stage:join"],
    ["join.old", "lookup", "stage:keep", "stage:join"],
  ]);
  expect(graph.edges.filter(({ kind }) => kind === "flow").map(({ id }) => id)).toEqual(["keep.rows", "join.orders"]);
});

test("a look-up says by what records are found, and whether it calls groups", () => {
  const lookup = { name: "now", table: "keep.now", columns: "", key: [] };
  expect(lookupWords({ ...lookup, by: ["k", "part"], wakes: true })).toBe("by k, part; changed records call groups");
  expect(lookupWords({ ...lookup, by: [], wakes: false })).toBe("every group has all records; changed records call no group");
});
