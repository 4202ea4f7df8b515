import { Anchor, Group, Stack, Text, Title } from "@mantine/core";
import { Link } from "react-router";

import { DataTable, type Column } from "@/components/DataTable";
import { PriorityBadge } from "@/components/PriorityBadge";
import { RelativeTime } from "@/components/RelativeTime";
import { StateBadge } from "@/components/StateBadge";
import { formatCount, formatSeconds } from "@/format/format";
import { LimitBar } from "@/screens/graph/FlowEdge";
import { lookupWords, wordsOf, type Graph, type GraphEdge, type Stage } from "@/screens/graph/model";

/** The graph as two tables: its stages, and what waits between them. */
export function GraphTable({ graph, dataflow }: { graph: Graph; dataflow: string }) {
  const stages = graph.nodes.flatMap((node) => node.stages);
  const lookups = stages.flatMap((stage) =>
    stage.lookups.map((one) => ({ id: `${stage.name}.${one.name}`, table: one.table, words: lookupWords(one) })),
  );
  return (
    <Stack>
      <Title order={2} size="h4">
        Stages
      </Title>
      <DataTable
        label="Stages"
        columns={stageColumns(dataflow)}
        rows={stages}
        rowKey={(row) => row.name}
        minWidth={900}
      />
      <Title order={2} size="h4">
        Flows
      </Title>
      <DataTable
        label="Flows"
        columns={FLOW_COLUMNS}
        rows={graph.edges.filter(({ input, kind }) => input !== "" && kind !== "lookup")}
        rowKey={(row) => row.id}
        sortName="flows"
        minWidth={900}
      />
      {lookups.length > 0 && (
        <>
          <Title order={2} size="h4">
            Look-ups
          </Title>
          <DataTable
            label="Look-ups"
            columns={LOOKUP_COLUMNS}
            rows={lookups}
            rowKey={(row) => row.id}
            sortName="lookups"
            minWidth={600}
          />
        </>
      )}
    </Stack>
  );
}

function stageColumns(dataflow: string): readonly Column<Stage>[] {
  return [
    {
      id: "stage",
      header: "Stage",
      sort: (row) => row.name,
      render: (row) => (
        <Anchor component={Link} to={`/dataflows/${dataflow}/stages/${row.name}`}>
          {row.name}
        </Anchor>
      ),
    },
    { id: "state", header: "State", sort: (row) => row.state, render: (row) => <StateCell stage={row} /> },
    {
      id: "why",
      header: "Activity or wait",
      render: (row) => (
        <Text size="sm" lineClamp={2} maw={520} title={wordsOf(row)}>
          {wordsOf(row)}
        </Text>
      ),
    },
    { id: "epoch", header: "Next epoch", align: "right", sort: (row) => row.epoch, render: (row) => formatCount(row.epoch) },
    {
      id: "lag",
      header: "Lag",
      align: "right",
      sort: (row) => row.lag_seconds ?? 0,
      render: (row) => (row.lag_seconds === null ? "none" : formatSeconds(row.lag_seconds)),
    },
    { id: "failures", header: "Failures", align: "right", sort: (row) => row.failures, render: (row) => formatCount(row.failures) },
    {
      id: "with",
      header: "Runs with",
      sort: (row) => row.runs_with,
      render: (row) => (row.runs_with === row.name ? "" : row.runs_with),
    },
  ];
}

function StateCell({ stage }: { stage: Stage }) {
  return (
    <Group gap={4}>
      <StateBadge state={stage.state} />
      <PriorityBadge priority={stage.priority} />
    </Group>
  );
}

interface LookupRow {
  id: string;
  table: string;
  words: string;
}

const LOOKUP_COLUMNS: readonly Column<LookupRow>[] = [
  { id: "table", header: "Table", sort: (row) => row.table, render: (row) => row.table },
  { id: "reader", header: "Looked up by", sort: (row) => row.id, render: (row) => row.id },
  { id: "how", header: "How", render: (row) => row.words },
];

const FLOW_COLUMNS: readonly Column<GraphEdge>[] = [
  { id: "flow", header: "Flow", sort: (row) => row.flow, render: (row) => row.flow },
  {
    id: "reader",
    header: "Read by",
    sort: (row) => row.id,
    render: (row) => row.id,
  },
  {
    id: "increments",
    header: "Increments",
    align: "right",
    sort: (row) => row.queue?.unread,
    render: (row) => (row.queue === null ? "within the run" : formatCount(row.queue.unread)),
  },
  {
    id: "records",
    header: "Records",
    align: "right",
    sort: (row) => row.queue?.unread_records,
    render: (row) => formatCount(row.queue?.unread_records),
  },
  {
    id: "age",
    header: "Oldest",
    sort: (row) => row.queue?.oldest_at,
    render: (row) => <RelativeTime at={row.queue?.oldest_at} never="none waits" />,
  },
  {
    id: "limit",
    header: "Back-pressure",
    sort: (row) => row.queue?.share,
    render: (row) => (row.queue === null ? "" : <LimitBar queue={row.queue} words />),
  },
];
