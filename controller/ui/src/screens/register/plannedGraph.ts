import { addLookups, type Graph, type GraphEdge, type GraphNode, type NodeKind } from "@/screens/graph/model";
import type { Validation } from "@/screens/register/useDocument";

type Wired = Pick<Validation, "sources" | "stages" | "flows" | "wiring" | "lookups">;

/** Return the graph that a document describes; nothing waits in it and nothing runs. */
export function plannedGraph({ sources, stages, flows, wiring, lookups }: Wired): Graph {
  const writers = new Map(sources.map((source) => [source, idOf("source", source)]));
  for (const stage of stages) {
    for (const flow of Object.keys(flows).filter((one) => one.startsWith(`${stage}.`))) {
      writers.set(flow, idOf("planned", stage));
    }
  }
  const edges: GraphEdge[] = [];
  const read = new Set<string>();
  for (const stage of stages) {
    for (const [input, flow] of Object.entries(wiring[stage] ?? {})) {
      read.add(flow);
      const from = writers.get(flow);
      if (from === undefined) continue;
      const id = `${stage}.${input}`;
      edges.push({ id, from, to: idOf("planned", stage), kind: "flow", flow, input, queue: null });
    }
    addLookups(edges, stage, lookups[stage] ?? {}, {
      to: idOf("planned", stage),
      writer: (table) => idOf("planned", table.split(".")[0] ?? ""),
    });
  }
  const results = Object.keys(flows).filter((flow) => flow.includes(".") && !read.has(flow));
  for (const flow of results) {
    const from = writers.get(flow) ?? "";
    edges.push({ id: flow, from, to: idOf("result", flow), kind: "flow", flow, input: "", queue: null });
  }
  const nodes = [
    ...sources.map((name) => node("source", name)),
    ...stages.map((name) => node("planned", name)),
    ...results.map((name) => node("result", name)),
  ];
  return { nodes, edges };
}

function node(kind: NodeKind, name: string): GraphNode {
  return { id: idOf(kind, name), kind, name, stages: [], frame: "" };
}

function idOf(kind: NodeKind, name: string): string {
  return `${kind}:${name}`;
}
