import { Graph as Dagre, layout as layOut } from "@dagrejs/dagre";

import { boundsOf, framesAround, type Box, type Frame, type Layout, type Size } from "@/screens/graph/boxes";
import type { Graph } from "@/screens/graph/model";
import { inTextRows, type Part } from "@/screens/graph/textRows";

export const NODE = { width: 190, height: 76 };
export const SMALL_NODE = { width: 150, height: 36 };
/** Between two parts of a graph that nothing connects. */
const GAP = 50;
const SCREEN: Size = { width: 1200, height: 600 };
/** Room between two stages for what waits on their edge; `.label` is as wide at most. */
const LABEL_WIDTH = 96;
const LOOP_ROOM = 60;
const LOOP_REACH = 90;

/**
 * Return where every node is; pure, the same for the same structure.
 *
 * The picture of a dataflow in a notebook is laid out by cbp/model/graph/drawing.py.
 *
 * Each part that hangs together is laid out from left to right; the parts then stand in rows, so
 * that many of them fill a screen and not a column. A part that is long continues in the next row.
 *
 * @param screen Where it is shown.
 */
export function layoutOf(graph: Graph, screen = SCREEN): Layout {
  const known = new Map<string, Part>();
  const parts = partsOf(graph).map((part) => {
    const shape = shapeOf(part);
    const twin = known.get(shape);
    if (twin !== undefined) return renamed(twin, part);
    const laidOut = layoutOfPart(part);
    const looped = part.edges.some(({ from, to }) => goesBack(laidOut.nodes.get(from)!, laidOut.nodes.get(to)!));
    const inRows = inTextRows(laidOut, groupsIn(part), looped, screen);
    known.set(shape, inRows);
    return inRows;
  });
  const nodes = new Map<string, Box>();
  const frames: Frame[] = [];
  for (const { part, x, y } of placesOf(parts, screen.width / screen.height)) {
    for (const [id, box] of part.nodes) nodes.set(id, { ...box, x: box.x + x, y: box.y + y });
    for (const frame of part.frames) frames.push({ ...frame, x: frame.x + x, y: frame.y + y });
  }
  return { nodes, frames };
}

/** Return the parts of a graph that no edge and no frame connects, in the order of their nodes. */
export function partsOf(graph: Graph): Graph[] {
  const root = new Map(graph.nodes.map(({ id }) => [id, id]));
  const find = (id: string): string => {
    const up = root.get(id) ?? id;
    if (up === id) return id;
    const top = find(up);
    root.set(id, top);
    return top;
  };
  for (const { from, to } of graph.edges) root.set(find(from), find(to));
  for (const { id, frame } of graph.nodes) if (frame !== "") root.set(find(id), find(`stage:${frame}`));
  const parts = new Map<string, { nodes: Graph["nodes"][number][]; edges: Graph["edges"][number][] }>();
  for (const node of graph.nodes) {
    const top = find(node.id);
    const part = parts.get(top) ?? { nodes: [], edges: [] };
    part.nodes.push(node);
    parts.set(top, part);
  }
  for (const edge of graph.edges) parts.get(find(edge.from))?.edges.push(edge);
  return [...parts.values()];
}

/** Return what two parts have in common that are laid out alike: all but the names. */
function shapeOf({ nodes, edges }: Graph): string {
  const at = new Map(nodes.map(({ id }, index) => [id, index]));
  const frames = [...new Set(nodes.map(({ frame }) => frame))];
  return JSON.stringify([
    nodes.map(({ kind, frame }) => [kind, frame === "" ? -1 : frames.indexOf(frame)]),
    edges.map(({ from, to }) => [at.get(from), at.get(to)]),
  ]);
}

/** Return the layout of a part for one of the same shape. */
function renamed(twin: Part, { nodes }: Graph): Part {
  const boxes = [...twin.nodes.values()];
  return { ...twin, nodes: new Map(nodes.map(({ id }, at) => [id, boxes[at]!])) };
}

/** Return the place of each part: in rows whose width gives the whole the form of a screen. */
function placesOf(parts: readonly Part[], form: number): { part: Part; x: number; y: number }[] {
  const area = parts.reduce((sum, { width, height }) => sum + (width + GAP) * (height + GAP), 0);
  const widest = Math.max(0, ...parts.map(({ width }) => width));
  const limit = Math.max(widest, Math.sqrt(area * form));
  const places: { part: Part; x: number; y: number }[] = [];
  let [x, y, tallest] = [0, 0, 0];
  for (const part of parts) {
    if (x > 0 && x + part.width > limit) [x, y, tallest] = [0, y + tallest + GAP, 0];
    places.push({ part, x, y });
    x += part.width + GAP;
    tallest = Math.max(tallest, part.height);
  }
  return places;
}

function layoutOfPart(graph: Graph): Part {
  const compound = graph.nodes.some(({ frame }) => frame !== "");
  const dagre = new Dagre({ compound, multigraph: true });
  dagre.setGraph({ rankdir: "LR", nodesep: 26, ranksep: LABEL_WIDTH + 4, marginx: 20, marginy: 20 });
  dagre.setDefaultEdgeLabel(() => ({}));
  for (const node of graph.nodes) {
    const size = node.kind === "stage" || node.kind === "group" ? NODE : SMALL_NODE;
    dagre.setNode(node.id, { ...size });
  }
  const groups = groupsIn(graph);
  for (const [at, members] of groups.entries()) {
    dagre.setNode(`frame:${at}`, {});
    for (const id of members) dagre.setParent(id, `frame:${at}`);
  }
  for (const { id, from, to } of graph.edges) {
    if (from !== to) dagre.setEdge(from, to, {}, id);
  }
  layOut(dagre);
  const nodes = new Map(graph.nodes.map(({ id }) => [id, boxOf(dagre.node(id))]));
  const frames = framesAround(nodes, groups);
  const { x, y, width, height } = boundsOf([...nodes.values(), ...frames]);
  return { nodes, frames, width: x + width, height: y + height + LOOP_ROOM };
}

/** Return the stages that run together, for each run of several. */
function groupsIn({ nodes }: Graph): string[][] {
  const groups = new Map<string, string[]>();
  for (const { id, frame } of nodes) {
    if (frame !== "") groups.set(frame, [...(groups.get(frame) ?? []), id]);
  }
  return [...groups.values()];
}

/** Return how far down a loop goes: below every node that it passes. */
export function belowAll(from: Box, to: Box, boxes: Iterable<Box>): number {
  const [left, right] = [Math.min(from.x, to.x), Math.max(from.x + from.width, to.x + to.width)];
  const top = Math.min(from.y, to.y) - LOOP_REACH;
  const bottom = Math.max(from.y + from.height, to.y + to.height) + LOOP_REACH;
  let below = Math.max(from.y + from.height, to.y + to.height);
  for (const box of boxes) {
    const passes = box.row === from.row && box.x < right && box.x + box.width > left && box.y < bottom && box.y + box.height > top;
    if (passes) below = Math.max(below, box.y + box.height);
  }
  return below;
}

/** Tell whether an edge goes back to where the data came from, so that it is drawn as a loop. */
export function goesBack(from: Box, to: Box): boolean {
  const [begin, end] = [from.row ?? 0, to.row ?? 0];
  return begin === end ? to.x <= from.x : end < begin;
}

function boxOf(placed: { x?: number; y?: number; width?: number; height?: number }): Box {
  const { x = 0, y = 0, width = 0, height = 0 } = placed;
  return { x: x - width / 2, y: y - height / 2, width, height };
}
