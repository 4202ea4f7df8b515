import { boundsOf, type Layout, type Size } from "@/screens/graph/boxes";
import { stateOf, type Graph } from "@/screens/graph/model";

/** Below this zoom the names of boxes cannot be read, even where a box shows nothing else. */
const READABLE = 0.4;
const ZOOM_MAX = 1.1;
const MARGIN = 24;
/** What is on the picture: buttons below it and, where a part of the graph is shown, a note above. */
const BUTTONS = 26;
const NOTE = 30;

export interface View {
  x: number;
  y: number;
  zoom: number;
  /** Whether the whole graph is in sight. */
  whole: boolean;
}

/**
 * Return how a graph is shown at first: as a whole if its names can be read then; otherwise the
 * part around the node that needs attention, as large as it must be to be read. Pure.
 */
export function firstView(graph: Graph, layout: Layout, chosen: string, screen: Size): View {
  const bounds = boundsOf([...layout.nodes.values(), ...layout.frames]);
  const { width, height } = usable(screen);
  const fitting = Math.min(width / bounds.width, height / bounds.height);
  const whole = fitting >= READABLE;
  const zoom = Math.min(ZOOM_MAX, Math.max(READABLE, fitting));
  const centre = layout.nodes.get(chosen) ?? layout.nodes.get(attentionOf(graph)) ?? bounds;
  return {
    x: offset(MARGIN, screen.width - MARGIN, bounds.x, bounds.width, centre.x + centre.width / 2, zoom),
    y: offset(
      whole ? MARGIN : MARGIN + NOTE,
      screen.height - MARGIN - BUTTONS,
      bounds.y,
      bounds.height,
      centre.y + centre.height / 2,
      zoom,
    ),
    zoom,
    whole,
  };
}

/** Return the size of what a screen has for boxes. */
export function usable({ width, height }: Size): Size {
  return { width: width - 2 * MARGIN, height: height - 2 * MARGIN - BUTTONS };
}

const ATTENTION = ["stopped", "retrying", "running"];

/** Return the node that an operator looks for first; the first one if all is well. */
export function attentionOf({ nodes, edges }: Graph): string {
  for (const state of ATTENTION) {
    const node = nodes.find((one) => one.stages.length > 0 && stateOf(one) === state);
    if (node !== undefined) return node.id;
  }
  const pending = edges.find(({ queue }) => queue !== null && queue.unread > 0);
  return pending?.to ?? nodes[0]?.id ?? "";
}

/**
 * Return the offset that shows a length between two pixels: in the middle if it fits; otherwise with a
 * point of it in the middle, but without an empty margin where the graph continues.
 */
function offset(
  from: number,
  to: number,
  start: number,
  length: number,
  point: number,
  zoom: number,
): number {
  const middle = (from + to) / 2;
  if (length * zoom <= to - from) return middle - (start + length / 2) * zoom;
  const first = from - start * zoom;
  const last = to - (start + length) * zoom;
  return Math.min(first, Math.max(last, middle - point * zoom));
}
