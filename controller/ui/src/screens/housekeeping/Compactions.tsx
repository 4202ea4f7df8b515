import { Text } from "@mantine/core";

import type { components } from "@/api/schema";
import { DataTable, type Column } from "@/components/DataTable";
import { RelativeTime } from "@/components/RelativeTime";
import { formatBytes, formatCount } from "@/format/format";
import { savedInWords } from "@/screens/housekeeping/words";

type Compaction = components["schemas"]["CompactionOut"];

const COLUMNS: readonly Column<Compaction>[] = [
  { id: "table", header: "Table", sort: (row) => row.table, render: (row) => row.table },
  { id: "at", header: "Last compacted", sort: (row) => row.at, render: (row) => <RelativeTime at={row.at} /> },
  {
    id: "files",
    header: "Files",
    align: "right",
    render: (row) => `${formatCount(row.files_before)} to ${formatCount(row.files_after)}`,
  },
  { id: "before", header: "Size before", align: "right", render: (row) => formatBytes(row.bytes_before) },
  { id: "after", header: "Size after", align: "right", render: (row) => formatBytes(row.bytes_after) },
  { id: "saved", header: "Saved", render: (row) => savedInWords(row) },
];

/** What runs merged last in each table, and what that saved. */
export function Compactions({ compactions }: { compactions: readonly Compaction[] }) {
  if (compactions.length === 0) {
    return (
      <Text size="sm">
        The last runs compacted no table. A run merges the small files of a table once there are enough of them.
      </Text>
    );
  }
  return (
    <div>
      <DataTable
        label="Last compactions"
        columns={COLUMNS}
        rows={compactions}
        rowKey={(row) => row.table}
        sortName="compactions-sort"
      />
      <Text size="xs" c="dimmed" mt={4}>
        Replaced files stay on disk until no readable version needs them; then a collection removes them.
      </Text>
    </div>
  );
}
