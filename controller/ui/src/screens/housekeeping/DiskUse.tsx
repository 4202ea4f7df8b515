import { Progress, Text } from "@mantine/core";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import type { components } from "@/api/schema";
import { Asked } from "@/components/Asked";
import { CliHint } from "@/components/CliHint";
import { DataTable, type Column } from "@/components/DataTable";
import { Nothing } from "@/components/Nothing";
import { RelativeTime } from "@/components/RelativeTime";
import { Section } from "@/components/Section";
import { formatBytes, formatCount, formatCounted, formatShare } from "@/format/format";

type Use = components["schemas"]["PlaceUseOut"];

/** What takes the space, table by table. */
export function DiskUse({ dataflow }: { dataflow: string }) {
  const use = useApi(
    ["disk", dataflow],
    () => client.GET("/api/v1/dataflows/{name}/disk", { params: { path: { name: dataflow } } }),
    { follow: false },
  );
  const all = use.data?.bytes ?? 0;
  const columns: readonly Column<Use>[] = [
    { id: "place", header: "Place", sort: (row) => row.place, render: (row) => row.place },
    { id: "files", header: "Files", align: "right", sort: (row) => row.files, render: (row) => formatCount(row.files) },
    { id: "bytes", header: "Size", align: "right", sort: (row) => row.bytes, render: (row) => formatBytes(row.bytes) },
    {
      id: "share",
      header: "Share",
      width: 200,
      render: (row) => (
        <Progress
          value={all === 0 ? 0 : (100 * row.bytes) / all}
          aria-label={`${row.place}: ${formatShare(row.bytes, all)}`}
        />
      ),
    },
  ];
  return (
    <Section
      title="Disk use"
      lead={
        use.data === undefined ? undefined : (
          <Text span size="sm">
            {formatCounted(use.data.files, "file")}, {formatBytes(use.data.bytes)}, all readable
            versions included; measured <RelativeTime at={use.data.at} />.
          </Text>
        )
      }
    >
      <Asked query={use}>
        {(answer) => (
          <DataTable
            label="Disk use by table"
            columns={columns}
            rows={answer.items}
            rowKey={(row) => row.place}
            sortName="disk-sort"
            empty={<Nothing>Nothing is on disk.</Nothing>}
          />
        )}
      </Asked>
      <CliHint words={["cbp", "disk", dataflow]} />
    </Section>
  );
}
