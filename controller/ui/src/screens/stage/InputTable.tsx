import { Group, Progress, Stack, Text } from "@mantine/core";

import type { components } from "@/api/schema";
import { DataTable, type Column } from "@/components/DataTable";
import { Section } from "@/components/Section";
import { RelativeTime } from "@/components/RelativeTime";
import { levelOf, pressureOf, type Pressure } from "@/components/runs/pressure";
import { formatBytes, formatCount, formatShare } from "@/format/format";

type Detail = components["schemas"]["StageDetail"];
type Queue = components["schemas"]["QueueOut"];

/** What waits at each input of a stage, and how near that is to holding the stage before it. */
export function InputTable({ dataflow, detail }: { dataflow: string; detail: Detail }) {
  const framing = new Map(detail.wait?.inputs.map((one) => [one.input, one]) ?? []);
  const columns: readonly Column<Queue>[] = [
    { id: "input", header: "Input", render: (row) => row.input },
    { id: "flow", header: "Flow", render: (row) => row.flow },
    {
      id: "unread",
      header: "Pending increments",
      align: "right",
      render: (row) => formatCount(row.unread),
    },
    { id: "kept", header: "Read and kept", align: "right", render: (row) => formatCount(row.increments - row.unread) },
    { id: "records", header: "Records", align: "right", render: (row) => formatCount(row.records) },
    { id: "size", header: "Size", align: "right", render: (row) => formatBytes(row.bytes) },
    {
      id: "oldest",
      header: "Oldest arrived",
      render: (row) => <RelativeTime at={row.oldest_at} never={row.unread === 0 ? "nothing waits" : "not known"} />,
    },
    {
      id: "frame",
      header: "Open frame",
      render: (row) => {
        const frame = framing.get(row.input)?.open_frame;
        return frame ? `${frame.framing_key} (${formatCount(frame.records)} records)` : "none";
      },
    },
    {
      id: "pressure",
      header: "Back-pressure",
      render: (row) => (
        <PressureBar
          pressure={pressureOf(
            { increments: row.unread, records: row.records, bytes: row.bytes },
            detail.limits[row.input],
          )}
        />
      ),
    },
  ];
  return (
    <Section title="Inputs">
      <DataTable
        label={`Inputs of ${dataflow}.${detail.stage.name}`}
        columns={columns}
        rows={detail.stage.queues}
        rowKey={(row) => row.input}
        minWidth={900}
        empty={
          <Text size="sm">
            This stage has no queue: it gets records within the runs of {detail.stage.runs_with}.
          </Text>
        }
      />
    </Section>
  );
}

function PressureBar({ pressure }: { pressure: Pressure | null }) {
  if (pressure === null) {
    return (
      <Text span size="sm" c="dimmed">
        no limit
      </Text>
    );
  }
  const { color, word } = levelOf(pressure.share);
  const words = `${formatShare(pressure.waits, pressure.limit)} of ${formatCount(pressure.limit)} ${pressure.by}`;
  return (
    <Stack gap={2} miw={150}>
      <Progress value={Math.min(100, pressure.share * 100)} color={color} size="sm" aria-label={`Back-pressure: ${word}, ${words}`} />
      <Group gap={4} wrap="nowrap">
        <Text span size="xs">
          {word}: {words}
        </Text>
      </Group>
    </Stack>
  );
}
