import { BaseEdge, EdgeLabelRenderer, getBezierPath, getSmoothStepPath, type Edge, type EdgeProps } from "@xyflow/react";
import { memo } from "react";

import { levelOf } from "@/components/runs/pressure";
import { formatCompact, formatCounted, formatRelative, formatShare } from "@/format/format";
import { useNow } from "@/hooks/useNow";
import { type GraphEdge, type Queue } from "@/screens/graph/model";
import classes from "@/screens/graph/graph.module.css";

/** `shift`: how far below the middle of its boxes it begins and ends. */
export type ShownEdge = Edge<{
  edge: GraphEdge;
  loop: boolean;
  turn: boolean;
  below: number;
  quiet: boolean;
  shift: number;
}>;

/**
 * A flow, or a look-up: that is dotted, and is drawn a little lower than a flow between the same boxes. A loop goes below
 * its stages, back to where it came from. One that ends in another row of a long graph turns in the gap between
 * them.
 */
export const FlowEdge = memo(function FlowEdge(props: EdgeProps<ShownEdge>) {
  const { id, sourceX, targetX, data, markerEnd } = props;
  if (data === undefined) return null;
  const { edge, loop, turn, below, quiet, shift } = data;
  const [sourceY, targetY] = [props.sourceY + shift, props.targetY + shift];
  const [path, labelX, labelY] = turn
    ? getSmoothStepPath({ ...props, sourceY, targetY, centerY: below, borderRadius: 10, offset: 24 })
    : loop
      ? loopPath(sourceX, sourceY, targetX, targetY, below)
      : getBezierPath({ ...props, sourceY, targetY });
  const { queue, kind } = edge;
  const looksUp = kind !== "flow";
  const pending = queue !== null && queue.unread > 0;
  return (
    <>
      <BaseEdge
        id={id}
        path={path}
        {...(markerEnd === undefined ? {} : { markerEnd })}
        className={classes.edge}
        data-lookup={looksUp || undefined}
        data-pending={pending || undefined}
        data-loop={loop || undefined}
        data-full={queue !== null && queue.share >= 1 ? true : undefined}
      />
      {((queue !== null && (pending || !quiet)) || (looksUp && !quiet)) && (
        <EdgeLabelRenderer>
          <div
            className={classes.label}
            style={{ transform: `translate(-50%, -50%) translate(${labelX}px, ${labelY}px)` }}
          >
            {pending && queue !== null && <Pending queue={queue} />}
            {queue !== null && !pending && <span className={classes.empty}>empty</span>}
            {looksUp && (
              <span className={classes.lookup} title={`${edge.to.split(":")[1]} looks ${edge.flow} up by key`}>
                looks up
              </span>
            )}
          </div>
        </EdgeLabelRenderer>
      )}
    </>
  );
});

/** What waits at an input: increments, records, age, and how near that is to the limit. */
export function Pending({ queue }: { queue: Queue }) {
  const now = useNow();
  const age = queue.oldest_at === null ? "" : `, oldest ${formatRelative(queue.oldest_at, now)}`;
  return (
    <>
      <span title={`${formatCounted(queue.unread_records, "record")}${age}`}>
        {formatCompact(queue.unread)} inc. · {formatCompact(queue.unread_records)} rec.
        {queue.oldest_at !== null && <span className={classes.age}>{formatRelative(queue.oldest_at, now)}</span>}
      </span>
      <LimitBar queue={queue} />
    </>
  );
}

/** How near a queue is to its limit, as a bar and in words; nothing where there is no limit. */
export function LimitBar({ queue, words = false }: { queue: Queue; words?: boolean }) {
  const limits = Object.entries(queue.limits);
  if (limits.length === 0) return words ? <span>no limit</span> : null;
  const { word, color } = levelOf(queue.share);
  const text = `${formatShare(queue.share, 1)} of the limit (${limits
    .map(([name, limit]) => `${formatCompact(limit)} ${name}`)
    .join(", ")}): ${word}`;
  return (
    <span className={classes.limit} title={text}>
      <span className={classes.bar} role="img" aria-label={text}>
        <span
          style={{
            width: `${Math.min(100, Math.max(2, queue.share * 100))}%`,
            background: `var(--mantine-color-${color}-filled)`,
          }}
        />
      </span>
      {words || queue.share > 0.6 ? <span>{word}</span> : null}
    </span>
  );
}

/** Return the path of a loop and the place of its label. */
export function loopPath(
  fromX: number,
  fromY: number,
  toX: number,
  toY: number,
  below: number,
): [string, number, number] {
  const out = 34;
  const path =
    `M${fromX},${fromY} C${fromX + out},${fromY} ${fromX + out},${below} ${fromX - out},${below} ` +
    `L${toX + out},${below} C${toX - out},${below} ${toX - out},${toY} ${toX},${toY}`;
  return [path, (fromX + toX) / 2, below];
}
