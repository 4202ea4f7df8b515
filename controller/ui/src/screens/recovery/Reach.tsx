import { Text } from "@mantine/core";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import type { components } from "@/api/schema";
import { Asked } from "@/components/Asked";
import { DataTable, type Column } from "@/components/DataTable";
import { Nothing } from "@/components/Nothing";
import { RelativeTime } from "@/components/RelativeTime";
import { Section } from "@/components/Section";
import { ToneBadge } from "@/components/ToneBadge";
import { formatCount, formatCounted } from "@/format/format";

type SourceReach = components["schemas"]["SourceReachOut"];

/** Ask how far back one can go in a dataflow. */
export function useReach(dataflow: string) {
  return useApi(["reach", dataflow], () =>
    client.GET("/api/v1/dataflows/{name}/reach", { params: { path: { name: dataflow } } }),
  );
}

const COLUMNS: readonly Column<SourceReach>[] = [
  { id: "source", header: "Source", render: (row) => row.source },
  {
    id: "kept",
    header: "Input is kept",
    render: (row) => (row.complete ? "all of it" : `from increment ${formatCount(row.first)} on`),
  },
  { id: "since", header: "Since", render: (row) => <RelativeTime at={row.first_at} never="no input yet" /> },
  { id: "increments", header: "Increments", align: "right", render: (row) => formatCount(row.increments) },
  {
    id: "allows",
    header: "Replace, retract, rebuild",
    render: (row) =>
      row.complete ? (
        <ToneBadge tone="good">Any file</ToneBadge>
      ) : (
        <ToneBadge tone="warn">Refused if all input is needed</ToneBadge>
      ),
  },
];

/** How far back what is kept lets one go, before anything is asked for. */
export function Reach({ dataflow }: { dataflow: string }) {
  const reach = useReach(dataflow);
  return (
    <Section
      title="How far back you can go"
      lead="A rebuild reads all input of every source, and so does a stage that recomputes groups for a corrected file. A roll-back can go back to the oldest kept position."
    >
      <Asked query={reach}>
        {(one) => (
          <>
            <DataTable
              label="Input that is kept"
              columns={COLUMNS}
              rows={one.sources}
              rowKey={(row) => row.source}
              minWidth={620}
              sortName="reach-sort"
              empty={<Nothing>There is no source.</Nothing>}
            />
            <Text size="sm">A roll-back can go back to position {formatCount(one.oldest_position ?? 0)}.</Text>
          </>
        )}
      </Asked>
    </Section>
  );
}

/** In a line, what is kept of one source, or of all of them. */
export function ReachLine({ dataflow, source }: { dataflow: string; source?: string }) {
  const reach = useReach(dataflow);
  const sources = reach.data?.sources.filter((one) => source === undefined || one.source === source);
  if (sources === undefined) return null;
  return (
    <Text size="sm" component="div">
      {sources.map((one) => (
        <div key={one.source}>
          {one.complete
            ? `${one.source}: all input is kept (${formatCounted(one.increments, "increment")}).`
            : `${one.source}: input is kept from increment ${formatCount(one.first)} on, so operations that need all input are refused.`}
        </div>
      ))}
    </Text>
  );
}
