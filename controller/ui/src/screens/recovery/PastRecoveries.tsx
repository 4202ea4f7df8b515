import { List, Text } from "@mantine/core";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import type { components } from "@/api/schema";
import { Asked } from "@/components/Asked";
import { DataTable, type Column } from "@/components/DataTable";
import { Nothing } from "@/components/Nothing";
import { RelativeTime } from "@/components/RelativeTime";
import { Section } from "@/components/Section";
import { formatSeconds } from "@/format/format";
import { recoveryInWords } from "@/screens/recovery/words";

type Recovery = components["schemas"]["RecoveryOut"];

const COLUMNS: readonly Column<Recovery>[] = [
  { id: "at", header: "When", render: (row) => <RelativeTime at={row.at} both /> },
  { id: "term", header: "Term", align: "right", render: (row) => row.term },
  { id: "instance", header: "Instance", render: (row) => row.instance || "this one" },
  { id: "took", header: "Took", align: "right", render: (row) => formatSeconds(row.seconds) },
  {
    id: "done",
    header: "Actions on this dataflow",
    render: (row) => {
      const lines = recoveryInWords(row);
      if (lines.length === 0) return <Text size="sm">No work was left to do.</Text>;
      return (
        <List size="sm">
          {lines.map((line) => (
            <List.Item key={line}>{line}</List.Item>
          ))}
        </List>
      );
    },
  },
];

/** What the last recoveries of the service did to a dataflow. */
export function PastRecoveries({ dataflow }: { dataflow: string }) {
  const recoveries = useApi(["recoveries", dataflow], () =>
    client.GET("/api/v1/recoveries", { params: { query: { dataflow } } }),
  );
  return (
    <Section
      title="Last recoveries"
      lead="When an instance becomes leader, it finishes the work that a crash interrupted. The last 20 recoveries that changed something are listed."
    >
      <Asked query={recoveries}>
        {(page) => (
          <DataTable
            label="Actions of each recovery"
            columns={COLUMNS}
            rows={page.items}
            rowKey={(row) => `${row.term}/${row.at}`}
            sortName="recoveries-sort"
            empty={<Nothing>No recovery is recorded.</Nothing>}
          />
        )}
      </Asked>
    </Section>
  );
}
