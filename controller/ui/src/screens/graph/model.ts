import type { components } from "@/api/schema";
import { formatCounted } from "@/format/format";

export type Detail = components["schemas"]["DataflowDetail"];
export type Stage = components["schemas"]["StageOut"];
export type Queue = components["schemas"]["QueueOut"];
export type Lookup = components["schemas"]["LookupOut"];

/** "planned": a stage of a document that is not registered, and so has no figures. */
export type NodeKind = "source" | "stage" | "result" | "group" | "planned";

/** One box of the graph. */
export interface GraphNode {
  id: string;
  kind: NodeKind;
  name: string;
  /** The stages that it represents: one, or those of a group that is drawn as one box. */
  stages: readonly Stage[];
  /** The stage with which it runs; "": it runs alone. */
  frame: string;
}

/** One flow from its writer to one reader, or a table and a stage that looks it up. */
export interface GraphEdge {
  id: string;
  from: string;
  to: string;
  /**
   * "lookup": a table is read by key; nothing flows, waits or is held there. "both": so it is, and
   * its changes are a flow that calls groups.
   */
  kind: "flow" | "lookup" | "both";
  /** The flow; of a look-up the table, as `stage.state`. */
  flow: string;
  /** The input that reads it; "": a result that no stage reads. */
  input: string;
  /** What waits there; null: it is handed on inside of a run, or leaves the dataflow. */
  queue: Queue | null;
}

export interface Graph {
  nodes: readonly GraphNode[];
  edges: readonly GraphEdge[];
}

const STAGE = "stage:";
const SOURCE = "source:";
const RESULT = "result:";
const GROUP = "group:";

/** Return the identity of a stage's node. */
export function stageId(name: string): string {
  return STAGE + name;
}

/** Return the graph of a dataflow; results are outputs that no stage reads. */
export function graphOf(detail: Detail): Graph {
  const { stages, sources } = detail;
  const framed = framesOf(stages);
  const nodes: GraphNode[] = sources.map(({ name }) => plainNode(SOURCE + name, "source", name));
  const edges: GraphEdge[] = [];
  const read = new Set(stages.flatMap((stage) => Object.values(stage.inputs)));
  for (const stage of stages) {
    const frame = framed.has(stage.runs_with) ? stage.runs_with : "";
    nodes.push({ id: stageId(stage.name), kind: "stage", name: stage.name, stages: [stage], frame });
    for (const [input, flow] of Object.entries(stage.inputs)) {
      const queue = stage.queues.find((one) => one.input === input) ?? null;
      const id = `${stage.name}.${input}`;
      edges.push({ id, from: writerId(flow), to: stageId(stage.name), kind: "flow", flow, input, queue });
    }
    addLookups(edges, stage.name, Object.fromEntries(stage.lookups.map(({ name, table }) => [name, table])), {
      to: stageId(stage.name),
      writer: writerId,
    });
    for (const flow of Object.keys(stage.outputs).filter((one) => !read.has(one))) {
      nodes.push({ ...plainNode(RESULT + flow, "result", flow), frame: "" });
      edges.push({ id: flow, from: stageId(stage.name), to: RESULT + flow, kind: "flow", flow, input: "", queue: null });
    }
  }
  // A dataflow that cannot be loaded has its stages and their inputs, and names no sources.
  const known = new Set(nodes.map(({ id }) => id));
  for (const { from, flow } of edges) {
    if (known.has(from)) continue;
    known.add(from);
    nodes.push(plainNode(from, "source", flow));
  }
  return { nodes, edges };
}

/**
 * Add the look-ups of a stage to the edges of a graph: one edge each, or the one of the changes
 * where these call groups.
 *
 * @param lookups Look-up to its table.
 * @param at The stage's node, and the node of the stage that writes a table.
 */
export function addLookups(
  edges: GraphEdge[],
  stage: string,
  lookups: Readonly<Record<string, string>>,
  at: { to: string; writer: (table: string) => string },
): void {
  for (const [name, table] of Object.entries(lookups)) {
    const changes = edges.find(({ id }) => id === `${stage}.${name}_changes`);
    if (changes?.flow === table) changes.kind = "both";
    else {
      const id = `${stage}.${name}`;
      edges.push({ id, from: at.writer(table), to: at.to, kind: "lookup", flow: table, input: name, queue: null });
    }
  }
}

/** Return the edges of a graph that are look-ups. */
export function lookupsOf(graph: Graph): GraphEdge[] {
  return graph.edges.filter(({ kind }) => kind !== "flow");
}

/** Return in words how a look-up finds records, and whether it calls groups. */
export function lookupWords({ by, wakes }: Lookup): string {
  const found = by.length === 0 ? "every group has all records" : `by ${by.join(", ")}`;
  return wakes ? `${found}; changed records call groups` : `${found}; changed records call no group`;
}

function plainNode(id: string, kind: NodeKind, name: string): GraphNode {
  return { id, kind, name, stages: [], frame: "" };
}

function writerId(flow: string): string {
  const [writer = "", output] = flow.split(".");
  return output === undefined ? SOURCE + writer : stageId(writer);
}

/** Return the leaders of the stages that run together. */
export function framesOf(stages: readonly Stage[]): Set<string> {
  return new Set(stages.filter((one) => one.runs_with !== one.name).map((one) => one.runs_with));
}

/**
 * Return the groups that can be drawn as one box: stages that run together, those of a cycle, and
 * in a large graph those whose names begin alike ("load_a", "load_b").
 */
export function groupsOf(stages: readonly Stage[]): Map<string, readonly string[]> {
  const groups = new Map<string, string[]>();
  const taken = new Set<string>();
  const add = (title: string, names: readonly string[]) => {
    const free = names.filter((name) => !taken.has(name));
    if (free.length < 2) return;
    for (const name of free) taken.add(name);
    groups.set(title, [...free]);
  };
  for (const stage of stages) {
    if (stage.cycle.length > 1) add(`loop of ${stage.cycle[0]}`, stage.cycle);
  }
  for (const leader of framesOf(stages)) {
    add(`run of ${leader}`, stages.filter((one) => one.runs_with === leader).map(({ name }) => name));
  }
  if (stages.length >= LARGE) {
    const prefixes = new Map<string, string[]>();
    for (const { name } of stages.filter((one) => !taken.has(one.name))) {
      const prefix = name.replace(/_?[^_]*$/, "");
      if (prefix !== "") prefixes.set(prefix, [...(prefixes.get(prefix) ?? []), name]);
    }
    for (const [prefix, names] of prefixes) add(`${prefix}_…`, names);
  }
  return groups;
}

/** From how many stages on names are grouped by their beginning, and quiet edges have no label. */
export const LARGE = 60;

/** Return the graph with some groups drawn as one box each; edges inside of a box are left out. */
export function collapse(graph: Graph, groups: ReadonlyMap<string, readonly string[]>): Graph {
  const boxOf = new Map<string, string>();
  for (const [title, names] of groups) {
    for (const name of names) boxOf.set(stageId(name), GROUP + title);
  }
  if (boxOf.size === 0) return graph;
  const nodes = graph.nodes.filter(({ id }) => !boxOf.has(id));
  for (const title of groups.keys()) {
    const id = GROUP + title;
    const members = graph.nodes.filter((node) => boxOf.get(node.id) === id);
    nodes.push({ id, kind: "group", name: title, stages: members.flatMap((one) => one.stages), frame: "" });
  }
  const edges = graph.edges
    .map((edge) => ({ ...edge, from: boxOf.get(edge.from) ?? edge.from, to: boxOf.get(edge.to) ?? edge.to }))
    .filter((edge) => edge.from !== edge.to || !edge.from.startsWith(GROUP));
  return { nodes, edges };
}

/** Return what is at most some steps away from a node, along edges in both directions. */
export function neighbourhood(graph: Graph, around: string, steps: number): Graph {
  let near = new Set([around]);
  for (let step = 0; step < steps; step += 1) {
    const wider = new Set(near);
    for (const { from, to } of graph.edges) {
      if (near.has(from)) wider.add(to);
      if (near.has(to)) wider.add(from);
    }
    near = wider;
  }
  return {
    nodes: graph.nodes.filter(({ id }) => near.has(id)),
    edges: graph.edges.filter(({ from, to }) => near.has(from) && near.has(to)),
  };
}

const WORST_FIRST = ["stopped", "retrying", "set_aside", "running", "paused", "waiting"];

/** Return the state of a box: that of its stage, or the most notable one of its group. */
export function stateOf(node: GraphNode): string {
  const states = new Set(node.stages.map(({ state }) => String(state)));
  return WORST_FIRST.find((state) => states.has(state)) ?? "waiting";
}

/** Return what an operator reads about a stage: why it does not run, or what it does. */
export function wordsOf(stage: Stage): string {
  const error = stage.error?.["message"];
  if (stage.state === "stopped" || stage.state === "retrying") {
    return stage.waiting || (typeof error === "string" ? error : "");
  }
  if (stage.state === "running") return `runs epoch ${stage.epoch}`;
  if (stage.state === "set_aside") return `${formatCounted(stage.set_aside, "record")} set aside, until you give them back`;
  return stage.waiting || "can start at the next tick";
}

/** A stage that keeps up takes what arrives within seconds; what waits longer is late. */
const LATE_SECONDS = 10;

/** Return the stages that keep increments waiting, the latest first. */
export function lateStages(stages: readonly Stage[]): Stage[] {
  return stages
    .filter((stage) => (stage.lag_seconds ?? 0) >= LATE_SECONDS)
    .sort((left, right) => (right.lag_seconds ?? 0) - (left.lag_seconds ?? 0));
}

/** Return how many stages are in which state, for the sentence on top. */
export function countStates(stages: readonly Stage[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { state } of stages) counts.set(state, (counts.get(state) ?? 0) + 1);
  return counts;
}

/** Return what decides the layout: names and edges, not figures. */
export function structureOf(graph: Graph): string {
  return JSON.stringify([
    graph.nodes.map(({ id, frame }) => [id, frame]),
    graph.edges.map(({ from, to }) => [from, to]),
  ]);
}
