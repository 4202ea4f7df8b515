import { Text } from "@mantine/core";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import type { components } from "@/api/schema";
import { Asked } from "@/components/Asked";
import { CliHint } from "@/components/CliHint";
import { DataTable, type Column } from "@/components/DataTable";
import { RelativeTime } from "@/components/RelativeTime";
import { Section } from "@/components/Section";

type SnapshotTable = components["schemas"]["TableOut"];

const COLUMNS: readonly Column<SnapshotTable>[] = [
  { id: "table", header: "Table", sort: (row) => row.table, render: (row) => row.table },
  { id: "version", header: "Version", align: "right", sort: (row) => row.version, render: (row) => row.version },
  {
    id: "epoch",
    header: "Last epoch",
    align: "right",
    sort: (row) => row.epoch,
    render: (row) => (row.epoch < 0 ? "none" : row.epoch),
  },
  {
    id: "path",
    header: "Folder",
    render: (row) => (
      <Text size="xs" ff="monospace" style={{ overflowWrap: "anywhere" }}>
        {row.path}
      </Text>
    ),
  },
];

/** The versions of all tables that belong together now. */
export function SnapshotSection({ dataflow }: { dataflow: string }) {
  const snapshot = useApi(["snapshot", dataflow], () =>
    client.GET("/api/v1/dataflows/{name}/snapshot", { params: { path: { name: dataflow } } }),
  );
  return (
    <Section
      title="Snapshot"
      lead={
        snapshot.data === undefined ? undefined : (
          <>
            The newest versions of all tables that show the same moment (
            <RelativeTime at={snapshot.data.at} />). They can be read at least until{" "}
            <RelativeTime at={snapshot.data.readable_until} both />.
          </>
        )
      }
    >
      <Asked query={snapshot}>
        {(one) => (
          <DataTable
            label="Tables of the snapshot"
            columns={COLUMNS}
            rows={one.tables}
            rowKey={(row) => row.table}
            sortName="snapshot-sort"
          />
        )}
      </Asked>
      <CliHint words={["cbp", "snapshot", dataflow, "--for", "spark"]} />
    </Section>
  );
}
