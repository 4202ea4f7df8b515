import type { Node, NodeProps } from "@xyflow/react";
import { Fragment, memo } from "react";
import { Link } from "react-router";

import { Icon, type IconName } from "@/components/Icon";
import { formatCounted } from "@/format/format";
import { stateOf, wordsOf, type GraphNode } from "@/screens/graph/model";
import classes from "@/screens/graph/graph.module.css";

export type Shown = Node<{ node: GraphNode; dataflow: string }>;

const STATES: Record<string, { word: string; icon: IconName }> = {
  running: { word: "Running", icon: "refresh" },
  waiting: { word: "Waiting", icon: "clock" },
  set_aside: { word: "Records set aside", icon: "alert" },
  retrying: { word: "Failed, retrying", icon: "alert" },
  paused: { word: "Paused", icon: "pause" },
  stopped: { word: "Stopped", icon: "close" },
};

/** A stage, or a group of stages that is drawn as one. */
export const StageNode = memo(function StageNode({ data, selected }: NodeProps<Shown>) {
  const { node, dataflow } = data;
  const state = stateOf(node);
  const { word, icon } = STATES[state] ?? { word: state, icon: "help" as IconName };
  const [stage] = node.stages;
  const priority = node.kind === "group" ? "normal" : (stage?.priority ?? "normal");
  const words = node.kind === "group" || stage === undefined ? inGroup(node) : wordsOf(stage);
  return (
    <div className={classes.stage} data-state={state} data-selected={selected || undefined} data-kind={node.kind}>
      <Ends />
      <div className={classes.name}>
        {node.kind === "group" ? (
          <span>
            <Breakable name={node.name} />
          </span>
        ) : (
          <Link className="nodrag nopan" to={`/dataflows/${dataflow}/stages/${node.name}`}>
            <Breakable name={node.name} />
          </Link>
        )}
      </div>
      <div className={classes.state}>
        <Icon name={icon} size={13} />
        {word}
        {priority !== "normal" && (
          <>
            <Icon name={priority === "high" ? "up" : "down"} size={13} />
            {priority} priority
          </>
        )}
      </div>
      <div className={classes.words} title={words}>
        {words}
      </div>
    </div>
  );
});

/** A name that continues in a second line behind an underscore. */
function Breakable({ name }: { name: string }) {
  return name.split(/(?<=_)/).map((piece, at) => (
    <Fragment key={at}>
      {at > 0 && <wbr />}
      {piece}
    </Fragment>
  ));
}

function inGroup(node: GraphNode): string {
  return formatCounted(node.stages.length, "stage");
}

const PLAIN: Record<string, { word: string; icon: IconName }> = {
  source: { word: "Source", icon: "folder" },
  result: { word: "Result", icon: "table" },
  planned: { word: "Stage", icon: "graph" },
};

/** A source, an output that no stage reads, or a stage that is not registered yet. */
export const EndNode = memo(function EndNode({ data }: NodeProps<Shown>) {
  const { node } = data;
  const { word, icon } = PLAIN[node.kind] ?? { word: node.kind, icon: "help" as IconName };
  return (
    <div className={classes.end} data-kind={node.kind} title={`${word} ${node.name}`}>
      <Ends />
      <Icon name={icon} size={14} label={word} />
      <span>{node.name}</span>
    </div>
  );
});

/** The frame around stages that run together. */
export const FrameNode = memo(function FrameNode({ data }: NodeProps<Shown>) {
  return (
    <div className={classes.frame}>
      <span>{data.node.name}</span>
    </div>
  );
});

/** Where edges end: plain elements that React Flow measures; its own cost too much for 500 stages. */
function Ends() {
  return (
    <>
      <i className="target" data-handlepos="left" />
      <i className="source" data-handlepos="right" />
    </>
  );
}
