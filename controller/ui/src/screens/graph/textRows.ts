import { boundsOf, FRAME_ROOM, framesAround, type Box, type Frame, type Layout, type Size } from "@/screens/graph/boxes";

/** Between two rows; an edge to the next row goes through it. */
const ROW_GAP = 48;
const LOOP_ROOM = 60;
/** Below this zoom what a box says beside its name cannot be read. */
const COMFORTABLE = 0.75;
/** A graph is long if its form is at least so many times that of the screen. */
const LONG = 1.5;
/** A row ends inside of a run only if it would otherwise become so many times too long. */
const PATIENCE = 1.5;

export interface Part extends Layout {
  width: number;
  height: number;
}

/**
 * Return a part in rows that are as large as possible on the screen; pure.
 *
 * A long chain, seen as a whole, is a thread that nobody can read. Its layers continue in the next row,
 * as the words of a text do; stages that run together stay in one row where they fit.
 *
 * @param groups The stages that run together.
 * @param looped Whether an edge goes back; it needs room below its row.
 */
export function inTextRows(
  part: Part,
  groups: readonly (readonly string[])[],
  looped: boolean,
  screen: Size,
): Part {
  const isLong = part.width / part.height > (LONG * screen.width) / screen.height;
  if (part.width * COMFORTABLE < screen.width || !isLong) return part;
  const layers = layersOf(part.nodes);
  const room = { head: groups.length > 0 ? FRAME_ROOM.above : 0, gap: ROW_GAP + (looped ? LOOP_ROOM : 0) };
  const zoomOf = ({ width, height }: Part) => Math.min(screen.width / width, screen.height / height);
  let best = part;
  for (let count = 2; count <= layers.length; count += 1) {
    const rows = stacked(part.nodes, split(layers, part.frames, part.width / count), room);
    if (zoomOf(rows) > zoomOf(best)) best = rows;
    // More rows are only higher from here on.
    if (rows.height / rows.width > screen.height / screen.width) break;
  }
  return best === part ? part : { ...best, frames: framesAround(best.nodes, groups) };
}

/** Return the nodes with their rows below one another. */
function stacked(
  nodes: ReadonlyMap<string, Box>,
  rows: readonly (readonly string[])[],
  { head, gap }: { head: number; gap: number },
): Part {
  // The order of the nodes stays: parts of the same shape are laid out once.
  const placed = new Map(nodes);
  let [top, width] = [0, 0];
  for (const [row, ids] of rows.entries()) {
    const bounds = boundsOf(ids.map((id) => nodes.get(id)!));
    const [left, upper] = [bounds.x - FRAME_ROOM.left, bounds.y - head];
    for (const id of ids) {
      const box = nodes.get(id)!;
      const below = box.y - upper + ROW_GAP / 2;
      placed.set(id, { ...box, x: box.x - left, y: box.y - upper + top, row, below });
    }
    width = Math.max(width, bounds.width + 2 * FRAME_ROOM.left);
    top += bounds.height + head + gap;
  }
  return { nodes: placed, frames: [], width, height: top };
}

/** Nodes that stand above one another. */
interface Layer {
  left: number;
  right: number;
  ids: string[];
}

function layersOf(nodes: ReadonlyMap<string, Box>): Layer[] {
  const layers = new Map<number, Layer>();
  for (const [id, { x, width }] of nodes) {
    const centre = Math.round(x + width / 2);
    const layer = layers.get(centre) ?? { left: x, right: x + width, ids: [] };
    layer.left = Math.min(layer.left, x);
    layer.right = Math.max(layer.right, x + width);
    layer.ids.push(id);
    layers.set(centre, layer);
  }
  return [...layers].sort(([a], [b]) => a - b).map(([, layer]) => layer);
}

/** Return the nodes of each row. */
function split(layers: readonly Layer[], frames: readonly Frame[], limit: number): string[][] {
  const rows: string[][] = [];
  let start = 0;
  for (const { left, right, ids } of layers) {
    const cut = left - FRAME_ROOM.left - 1;
    const inside = frames.some(({ x, width }) => x < cut && cut < x + width);
    const length = right - start;
    const row = rows.at(-1);
    if (row === undefined || (length > limit && !inside) || length > PATIENCE * limit) {
      rows.push([...ids]);
      start = left;
    } else {
      row.push(...ids);
    }
  }
  return rows;
}
