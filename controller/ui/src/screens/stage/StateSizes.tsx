import { Anchor, Text } from "@mantine/core";
import { Link } from "react-router";

import type { components } from "@/api/schema";
import { DataTable, type Column } from "@/components/DataTable";
import { formatBytes, formatCount, UNKNOWN } from "@/format/format";

type Size = components["schemas"]["SpreadOut"];

const HEIGHT = 36;
const BIN = 9;

/** The size of each state, and how evenly its records lie in its buckets. */
export function StateSizes({
  dataflow,
  stage,
  sizes,
}: {
  dataflow: string;
  stage: string;
  sizes: readonly Size[];
}) {
  const columns: readonly Column<Size>[] = [
    {
      id: "state",
      header: "State",
      render: (row) => (
        <Anchor component={Link} to={`/dataflows/${dataflow}/state/${stage}/${row.state}`} size="sm">
          {row.state}
        </Anchor>
      ),
    },
    { id: "rows", header: "Records", align: "right", render: (row) => formatCount(row.rows) },
    { id: "dead", header: "Deleted, still in files", align: "right", render: (row) => formatCount(row.dead) },
    { id: "size", header: "Size", align: "right", render: (row) => formatBytes(row.bytes) },
    { id: "files", header: "Files", align: "right", render: (row) => formatCount(row.files) },
    {
      id: "buckets",
      header: "Buckets in use",
      align: "right",
      render: (row) => `${formatCount(row.used)} of ${formatCount(row.buckets)}`,
    },
    {
      id: "skew",
      header: "Skew",
      render: (row) => skewInWords(row),
    },
    { id: "histogram", header: "Buckets by records", render: (row) => <Histogram size={row} /> },
  ];
  return (
    <DataTable
      label="States"
      columns={columns}
      rows={sizes}
      rowKey={(row) => row.state}
      minWidth={900}
      empty={<Text size="sm">This stage keeps no state.</Text>}
    />
  );
}

/** Return how much fuller than the mean the fullest bucket is. */
export function skewInWords(size: Size | undefined): string {
  if (size === undefined || size.skew === null) return UNKNOWN;
  return `${size.skew.toFixed(2)}: bucket ${size.fullest} has ${formatCount(size.rows_max)}, the mean is ${meanOf(size)}`;
}

/** The mean with one digit, where whole records would say too little. */
function meanOf(size: Size): string {
  return size.rows_mean < 100 ? String(Number(size.rows_mean.toFixed(1))) : formatCount(size.rows_mean);
}

/** How many buckets hold how many records; the words say the same as the bars. */
function Histogram({ size }: { size: Size }) {
  const most = Math.max(1, ...size.histogram);
  if (size.histogram.length === 0) return <>{UNKNOWN}</>;
  const words = size.histogram
    .map((count, bin) => {
      const from = Math.round(bin * size.bin_rows);
      const to = Math.round((bin + 1) * size.bin_rows);
      return count === 0 ? "" : `${count} of ${from} to ${to}`;
    })
    .filter((part) => part !== "")
    .join(", ");
  return (
    <svg
      width={size.histogram.length * BIN}
      height={HEIGHT}
      role="img"
      aria-label={`Buckets by their records: ${words}`}
    >
      <title>{words}</title>
      {size.histogram.map((count, bin) => {
        const height = count === 0 ? 1 : Math.max(3, (count / most) * HEIGHT);
        return (
          <rect
            key={bin}
            x={bin * BIN}
            y={HEIGHT - height}
            width={BIN - 2}
            height={height}
            fill={count === 0 ? "var(--mantine-color-default-border)" : "var(--mantine-primary-color-filled)"}
          />
        );
      })}
    </svg>
  );
}
