import { Button, Group, Paper, Stack, Text } from "@mantine/core";

import { client } from "@/api/client";
import { useAction, useApi } from "@/api/hooks";
import type { components } from "@/api/schema";
import { useSession } from "@/api/session";
import { Asked } from "@/components/Asked";
import { CliHint } from "@/components/CliHint";
import { DataTable, type Column } from "@/components/DataTable";
import { Icon } from "@/components/Icon";
import { RelativeTime } from "@/components/RelativeTime";
import { Section } from "@/components/Section";
import { StateBadge } from "@/components/StateBadge";
import { formatBytes, formatCount, formatCounted } from "@/format/format";
import { useUrlState } from "@/hooks/urlState";
import { Compactions } from "@/screens/housekeeping/Compactions";
import { garbageInWords } from "@/screens/housekeeping/words";

type Heap = components["schemas"]["HeapOut"];

const COLUMNS: readonly Column<Heap>[] = [
  { id: "place", header: "Place", sort: (row) => row.place, render: (row) => row.place },
  {
    id: "goes",
    header: "Now",
    sort: (row) => (row.goes ? 0 : 1),
    render: (row) => (
      <StateBadge state={row.goes ? "retrying" : "ok"} word={row.goes ? "Can be removed" : "Kept"} />
    ),
  },
  { id: "because", header: "Why", render: (row) => <Text size="sm">{row.because}</Text> },
  { id: "files", header: "Files", align: "right", sort: (row) => row.files, render: (row) => formatCount(row.files) },
  { id: "bytes", header: "Size", align: "right", sort: (row) => row.bytes, render: (row) => formatBytes(row.bytes) },
];

/** What a collection would remove, and why the rest stays; collect now. */
export function GarbageSection({ dataflow }: { dataflow: string }) {
  const session = useSession();
  const [which, setWhich] = useUrlState("garbage", "going");
  const params = { path: { name: dataflow } };
  const garbage = useApi(["garbage", dataflow], () =>
    client.GET("/api/v1/dataflows/{name}/garbage", { params }),
    { follow: false },
  );
  const collect = useAction(
    () => client.POST("/api/v1/dataflows/{name}/garbage/collect", { params }),
    {
      done: (answer) =>
        answer.last === null
          ? "Collected"
          : `Collected ${formatCounted(answer.last.files, "file")} of ${formatBytes(answer.last.bytes)}`,
    },
  );
  return (
    <Section
      title="Garbage collection and compaction"
      lead="The service removes files that no readable version, queue or record needs, a few at a time. Runs compact state while they write it."
      actions={
        <>
          <Button
            variant="default"
            leftSection={<Icon name="refresh" />}
            loading={garbage.isFetching}
            onClick={() => void garbage.refetch()}
          >
            Look again
          </Button>
          {session.can("admin") && (
            <Button
              leftSection={<Icon name="trash" />}
              loading={collect.isPending}
              onClick={() => collect.mutate()}
            >
              Collect now
            </Button>
          )}
        </>
      }
    >
      <Asked query={garbage}>
        {(answer) => {
          const going = answer.items.filter((heap) => heap.goes);
          const rows = which === "all" ? answer.items : going;
          return (
            <Stack gap="sm">
              <Paper withBorder p="md" radius="md">
                <Group justify="space-between" gap="sm">
                  <Text size="sm">{garbageInWords(answer.items)}</Text>
                  <Text size="sm" c="dimmed">
                    {answer.last === null ? (
                      "not collected since this instance became leader"
                    ) : (
                      <>
                        last collected <RelativeTime at={answer.last.at} />, by {answer.last.by}:{" "}
                        {formatCounted(answer.last.files, "file")} of {formatBytes(answer.last.bytes)}
                      </>
                    )}
                  </Text>
                </Group>
              </Paper>
              {rows.length > 0 && (
                <DataTable
                  label="Files that a collection removes or keeps"
                  columns={COLUMNS}
                  rows={rows}
                  rowKey={(row) => `${row.place}/${row.because}`}
                  sortName="garbage-sort"
                />
              )}
              <Group>
                <Button
                  variant="default"
                  size="compact-sm"
                  onClick={() => setWhich(which === "all" ? "going" : "all")}
                >
                  {which === "all" ? "Show only files that can be removed" : "Also show files that are kept, and why"}
                </Button>
              </Group>
              <Compactions compactions={answer.compactions} />
            </Stack>
          );
        }}
      </Asked>
      <CliHint words={["cbp", "gc", dataflow]} />
    </Section>
  );
}
