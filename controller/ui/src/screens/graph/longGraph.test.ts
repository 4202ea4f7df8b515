import { expect, test } from "vitest";

import { boundsOf, type Box } from "@/screens/graph/boxes";
import { attentionOf, firstView } from "@/screens/graph/firstView";
import { goesBack, layoutOf } from "@/screens/graph/layout";
import type { Graph, GraphNode, Stage } from "@/screens/graph/model";

const SCREEN = { width: 1230, height: 500 };
const NARROW = { width: 370, height: 460 };

function node(at: number, changes: Partial<GraphNode> = {}): GraphNode {
  const name = `s${at}`;
  const stages = [{ name, state: "waiting" } as Stage];
  return { id: `stage:${name}`, kind: "stage", name, stages, frame: "", ...changes };
}

/** A chain, with further edges from stage to stage, by their numbers. */
function chain(length: number, further: readonly [number, number][] = [], frameOf = (_: number) => ""): Graph {
  const nodes = Array.from({ length }, (_, at) => node(at, { frame: frameOf(at) }));
  const steps = nodes.slice(1).map((_, at): [number, number] => [at, at + 1]);
  const edges = [...steps, ...further].map(([from, to]) => ({
    id: `${from}-${to}`,
    from: `stage:s${from}`,
    to: `stage:s${to}`,
    flow: "",
    input: "in",
    kind: "flow" as const,
    queue: null,
  }));
  return { nodes, edges };
}

function apart(a: Box, b: Box): boolean {
  return a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y;
}

test("a long chain continues in the next row, and no box covers another", () => {
  const graph = chain(60);
  const { nodes } = layoutOf(graph, SCREEN);
  const boxes = graph.nodes.map(({ id }) => nodes.get(id)!);
  const { width, height } = boundsOf(boxes);
  expect(width / height).toBeGreaterThan(0.7 * (SCREEN.width / SCREEN.height));
  expect(width / height).toBeLessThan(1.4 * (SCREEN.width / SCREEN.height));
  for (const [at, box] of boxes.entries()) {
    const next = boxes[at + 1];
    // Read as a text: to the right, or in the next row.
    if (next !== undefined) expect(goesBack(box, next)).toBe(false);
    for (const other of boxes.slice(at + 1)) expect(apart(box, other)).toBe(true);
  }
});

test("a narrow screen has shorter rows, and a short chain has one", () => {
  const wide = boundsOf(layoutOf(chain(60), SCREEN).nodes.values());
  const narrow = boundsOf(layoutOf(chain(60), NARROW).nodes.values());
  expect(narrow.width).toBeLessThan(0.8 * wide.width);
  const rows = [...layoutOf(chain(4), SCREEN).nodes.values()].map(({ row }) => row);
  expect(new Set(rows)).toEqual(new Set([undefined]));
});

test("an edge to an earlier row is a loop", () => {
  const { nodes } = layoutOf(chain(60, [[59, 0]]), SCREEN);
  expect(goesBack(nodes.get("stage:s59")!, nodes.get("stage:s0")!)).toBe(true);
});

test("stages that run together stay in one row, and a run that is longer than a row continues", () => {
  const threes = chain(60, [], (at) => `s${at - (at % 3)}`);
  const { nodes, frames } = layoutOf(threes, SCREEN);
  expect(frames).toHaveLength(20);
  expect(frames.some(({ goesOn }) => goesOn)).toBe(false);
  for (const [at, frame] of frames.entries()) {
    for (const other of frames.slice(at + 1)) expect(apart(frame, other)).toBe(true);
  }
  const rows = threes.nodes.map(({ id }) => nodes.get(id)?.row);
  expect(new Set(rows).size).toBeGreaterThan(1);
  for (let at = 0; at < 60; at += 3) expect(new Set(rows.slice(at, at + 3)).size).toBe(1);

  const one = layoutOf(chain(60, [], () => "s0"), SCREEN);
  expect(one.frames.filter(({ goesOn }) => !goesOn)).toHaveLength(1);
  expect(one.frames.length).toBe(new Set([...one.nodes.values()].map(({ row }) => row)).size);
});

test("a graph that can be read as a whole is shown as a whole, in the middle", () => {
  const graph = chain(4);
  const layout = layoutOf(graph, SCREEN);
  const view = firstView(graph, layout, "", SCREEN);
  const { x, width } = boundsOf(layout.nodes.values());
  expect(view.whole).toBe(true);
  expect(view.x + x * view.zoom).toBeCloseTo(SCREEN.width - (view.x + (x + width) * view.zoom));
});

test("a larger one is shown around what needs attention, large enough to be read", () => {
  const graph = chain(500);
  const layout = layoutOf(graph, SCREEN);
  const shown = (id: string, view: { x: number; y: number; zoom: number }) => {
    const { x, y, width, height } = layout.nodes.get(id)!;
    const [left, top] = [x * view.zoom + view.x, y * view.zoom + view.y];
    return left >= 0 && top >= 0 && left + width * view.zoom <= SCREEN.width && top + height * view.zoom <= SCREEN.height;
  };
  const first = firstView(graph, layout, "", SCREEN);
  expect(first.whole).toBe(false);
  expect(first.zoom).toBeGreaterThanOrEqual(0.4);
  expect(shown("stage:s0", first)).toBe(true);
  expect(shown("stage:s321", first)).toBe(false);
  expect(shown("stage:s321", firstView(graph, layout, "stage:s321", SCREEN))).toBe(true);
  const failing = { ...graph, nodes: graph.nodes.map((one, at) => (at === 432 ? failed(one) : one)) };
  expect(attentionOf(failing)).toBe("stage:s432");
  expect(shown("stage:s432", firstView(failing, layout, "", SCREEN))).toBe(true);
});

function failed(one: GraphNode): GraphNode {
  return { ...one, stages: one.stages.map((stage) => ({ ...stage, state: "stopped" as const })) };
}
