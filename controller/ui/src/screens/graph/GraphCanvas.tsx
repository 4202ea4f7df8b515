import "@xyflow/react/dist/base.css";

import { useComputedColorScheme } from "@mantine/core";
import { Background, Controls, MarkerType, MiniMap, Panel, Position, ReactFlow, type Viewport } from "@xyflow/react";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";

import { FlowEdge, type ShownEdge } from "@/screens/graph/FlowEdge";
import { EndNode, FrameNode, StageNode, type Shown } from "@/screens/graph/GraphNodes";
import type { Box, Frame, Layout, Size } from "@/screens/graph/boxes";
import { firstView, usable } from "@/screens/graph/firstView";
import { belowAll, goesBack, layoutOf } from "@/screens/graph/layout";
import { LARGE, structureOf, type Graph, type GraphNode } from "@/screens/graph/model";
import classes from "@/screens/graph/graph.module.css";

const NODE_TYPES = { stage: StageNode, end: EndNode, frame: FrameNode };
const EDGE_TYPES = { flow: FlowEdge };
const LOOP_DEPTH = 30;
const LOOP_STEP = 18;
const TURN_STEP = 6;
/** How far below the middle of its boxes a look-up begins and ends, as a part of their height. */
const LOOKUP_SHIFT = 0.32;
/** Below this zoom a box shows its name only, as large as it can. */
const FAR = 0.5;
const MINIMAP_FROM = 30;
const MINIMAP_WIDTH_MIN = 600;
const MINIMAP_AFTER_MILLISECONDS = 800;

interface GraphCanvasProps {
  graph: Graph;
  dataflow: string;
  /** The node that is chosen; "": none. */
  chosen: string;
  onChoose: (id: string) => void;
  /** In pixels; by default it fills the screen. */
  height?: number;
}

/** The graph as a picture that can be moved and zoomed. */
export function GraphCanvas(props: GraphCanvasProps) {
  const structure = structureOf(props.graph);
  const frame = useRef<HTMLDivElement>(null);
  const [screen, setScreen] = useState<Size>();
  useLayoutEffect(() => {
    if (frame.current === null) return;
    const { clientWidth, clientHeight } = frame.current;
    setScreen({ width: clientWidth, height: clientHeight });
  }, []);
  return (
    <div ref={frame} className={classes.canvas} style={{ height: props.height }}>
      {/* A new structure is shown from its beginning; new figures leave the view where it is. */}
      {screen !== undefined && <Picture key={structure} {...props} structure={structure} screen={screen} />}
    </div>
  );
}

function Picture({
  graph,
  dataflow,
  chosen,
  onChoose,
  structure,
  screen,
}: GraphCanvasProps & { structure: string; screen: Size }) {
  const scheme = useComputedColorScheme("light");
  // The places depend on the structure alone: figures change every few seconds.
  // eslint-disable-next-line react-hooks/exhaustive-deps
  const layout = useMemo(() => layoutOf(graph, usable(screen)), [structure, screen]);
  const nodes = useMemo(
    () => shownNodes(graph, layout, dataflow, chosen),
    [graph, layout, dataflow, chosen],
  );
  const edges = useMemo(() => shownEdges(graph, layout), [graph, layout]);
  const [view] = useState(() => firstView(graph, layout, chosen, screen));
  const [far, setFar] = useState(view.zoom < FAR);
  // The overview comes after the graph, which one waits for.
  const [settled, setSettled] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(true), MINIMAP_AFTER_MILLISECONDS);
    return () => clearTimeout(timer);
  }, []);
  const [closer, setCloser] = useState(false);
  const onViewportChange = useCallback(
    ({ zoom }: Viewport) => {
      setFar(zoom < FAR);
      setCloser(zoom > view.zoom);
    },
    [view],
  );
  // It would hide a part of what is in sight as a whole, or much of a small screen.
  const overview = (closer || !view.whole) && screen.width >= MINIMAP_WIDTH_MIN;
  return (
    <div
      className={classes.picture}
      data-testid="graph"
      data-nodes={graph.nodes.length}
      data-far={far || undefined}
    >
      <ReactFlow<Shown, ShownEdge>
        nodes={nodes}
        edges={edges}
        nodeTypes={NODE_TYPES}
        edgeTypes={EDGE_TYPES}
        colorMode={scheme}
        defaultViewport={view}
        minZoom={0.03}
        onViewportChange={onViewportChange}
        nodesDraggable={false}
        nodesConnectable={false}
        edgesFocusable={false}
        deleteKeyCode={null}
        onNodeClick={(_, { id, type }) => type !== "frame" && onChoose(id)}
        onPaneClick={() => onChoose("")}
        aria-label={`Graph of ${dataflow}`}
      >
        <Background gap={24} />
        <Controls showInteractive={false} orientation="horizontal" fitViewOptions={{ padding: 0.05, maxZoom: 1.1 }} />
        {!view.whole && (
          <Panel position="top-right" className={classes.part}>
            A part of the graph: drag to move, scroll to zoom
          </Panel>
        )}
        {settled && overview && graph.nodes.length >= MINIMAP_FROM && (
          <MiniMap pannable zoomable ariaLabel="Overview of the graph" />
        )}
      </ReactFlow>
    </div>
  );
}

function shownNodes(graph: Graph, layout: Layout, dataflow: string, chosen: string): Shown[] {
  const frames = layout.frames.map((box, at) => ({
    ...placed(`frame:${at}`, box),
    type: "frame",
    data: { node: frameOf(box), dataflow },
    selectable: false,
    focusable: false,
    zIndex: -1,
  }));
  const boxes = graph.nodes.map((node) => ({
    ...placed(node.id, layout.nodes.get(node.id)),
    type: node.kind === "stage" || node.kind === "group" ? "stage" : "end",
    data: { node, dataflow },
    selected: node.id === chosen,
    ariaLabel: `${node.kind} ${node.name}`,
  }));
  return [...frames, ...boxes];
}

function frameOf({ goesOn }: Frame): GraphNode {
  return { id: "", kind: "group", name: goesOn ? "the same run" : "one run", stages: [], frame: "" };
}

function placed(id: string, box: Box = { x: 0, y: 0, width: 0, height: 0 }) {
  const { x, y, width, height } = box;
  // Size and ends are given, so nothing has to be measured before edges are drawn.
  const end = { y: height / 2, width: 1, height: 1 };
  return {
    id,
    position: { x, y },
    width,
    height,
    measured: { width, height },
    handles: [
      { type: "target" as const, position: Position.Left, x: 0, ...end },
      { type: "source" as const, position: Position.Right, x: width, ...end },
    ],
  };
}

function shownEdges(graph: Graph, layout: Layout): ShownEdge[] {
  const quiet = graph.nodes.length > LARGE;
  let [loops, turns] = [0, 0];
  return graph.edges.flatMap((edge) => {
    const from = layout.nodes.get(edge.from);
    const to = layout.nodes.get(edge.to);
    if (from === undefined || to === undefined) return [];
    const loop = goesBack(from, to);
    const turn = from.row !== to.row;
    // Loops lie below one another, so that each can be followed.
    const below = turn
      ? to.y - (to.below ?? 0) + TURN_STEP * (turns++ % 4)
      : loop
        ? belowAll(from, to, layout.nodes.values()) + LOOP_DEPTH + LOOP_STEP * (loops++ % 4)
        : 0;
    return [
      {
        id: edge.id,
        source: edge.from,
        target: edge.to,
        type: "flow",
        data: { edge, loop, turn, below, quiet, shift: edge.kind === "lookup" ? LOOKUP_SHIFT * to.height : 0 },
        markerEnd: { type: edge.kind !== "flow" ? MarkerType.Arrow : MarkerType.ArrowClosed, width: 16, height: 16 },
        focusable: false,
        selectable: false,
      },
    ];
  });
}
