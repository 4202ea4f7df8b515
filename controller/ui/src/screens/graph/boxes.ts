const FRAME_PADDING = 14;
const FRAME_HEAD = 20;

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
  /** The row of a long graph, from the top; left out where there is one only. */
  row?: number;
  /** How far it is below the gap above its row. */
  below?: number;
}

/** In pixels. */
export interface Size {
  width: number;
  height: number;
}

export interface Frame extends Box {
  /** Whether it continues with a frame of the row above. */
  goesOn: boolean;
}

export interface Layout {
  nodes: ReadonlyMap<string, Box>;
  /** Around the stages that run together: one frame in each row in which there are some. */
  frames: readonly Frame[];
}

/** The smallest box around some boxes; one of a point where there is none. */
export function boundsOf(boxes: Iterable<Box>): Box {
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const { x, y, width, height } of boxes) {
    left = Math.min(left, x);
    top = Math.min(top, y);
    right = Math.max(right, x + width);
    bottom = Math.max(bottom, y + height);
  }
  if (left > right) return { x: 0, y: 0, width: 1, height: 1 };
  return { x: left, y: top, width: right - left, height: bottom - top };
}

/** Return the frames around the members of each group, in each row. */
export function framesAround(
  nodes: ReadonlyMap<string, Box>,
  groups: Iterable<readonly string[]>,
): readonly Frame[] {
  const frames: Frame[] = [];
  for (const members of groups) {
    const rows = new Map<number, Box[]>();
    for (const id of members) {
      const box = nodes.get(id);
      if (box !== undefined) rows.set(box.row ?? 0, [...(rows.get(box.row ?? 0) ?? []), box]);
    }
    const first = Math.min(...rows.keys());
    for (const [row, boxes] of rows) {
      const { x, y, width, height } = boundsOf(boxes);
      frames.push({
        x: x - FRAME_PADDING,
        y: y - FRAME_PADDING - FRAME_HEAD,
        width: width + 2 * FRAME_PADDING,
        height: height + 2 * FRAME_PADDING + FRAME_HEAD,
        goesOn: row !== first,
      });
    }
  }
  return frames;
}

/** The room that a frame takes on the left of its stages, and above them. */
export const FRAME_ROOM = { left: FRAME_PADDING, above: FRAME_PADDING + FRAME_HEAD };
