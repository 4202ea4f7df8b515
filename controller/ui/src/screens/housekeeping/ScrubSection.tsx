import { Button, Group, Paper, Progress, Stack, Text } from "@mantine/core";

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
import { scrubInWords, scrubShare } from "@/screens/housekeeping/words";

type Scrub = components["schemas"]["ScrubOut"];
type Damage = components["schemas"]["DamageOut"];

const UNDER_WAY_MILLISECONDS = 2_000;

const STATES: Record<Scrub["status"], { state: string; word: string }> = {
  never: { state: "paused", word: "Not yet" },
  running: { state: "running", word: "Reading" },
  whole: { state: "ok", word: "Whole" },
  damaged: { state: "failed", word: "Damaged" },
  failed: { state: "failed", word: "Failed" },
};

const COLUMNS: readonly Column<Damage>[] = [
  { id: "what", header: "What", render: (row) => [row.kind, row.table].filter(Boolean).join(" of ") },
  { id: "why", header: "What is wrong", render: (row) => <Words text={row.why} /> },
  { id: "next", header: "How to repair it", render: (row) => <Words text={row.next_step} /> },
  {
    id: "path",
    header: "File",
    render: (row) => (
      <Text size="xs" ff="monospace" style={{ overflowWrap: "anywhere" }}>
        {row.path}
      </Text>
    ),
  },
];

function Words({ text }: { text: string }) {
  return (
    <Text size="sm" style={{ overflowWrap: "anywhere" }}>
      {text}
    </Text>
  );
}

/** Reading everything on disk: how far it is, the last full pass, what is damaged and its remedy. */
export function ScrubSection({ dataflow }: { dataflow: string }) {
  const session = useSession();
  const params = { path: { name: dataflow } };
  const scrub = useApi(
    ["scrub", dataflow],
    () => client.GET("/api/v1/dataflows/{name}/scrub", { params }),
    { every: (one) => (one?.status === "running" ? UNDER_WAY_MILLISECONDS : undefined) },
  );
  const start = useAction(() => client.POST("/api/v1/dataflows/{name}/scrub", { params }), {
    done: "Reading everything",
    changes: [["scrub", dataflow]],
  });
  return (
    <Section
      title="Scrub"
      lead="Reads every file again and compares it with what was written."
      actions={
        session.can("operator") && (
          <Button
            variant="default"
            leftSection={<Icon name="shield" />}
            loading={start.isPending}
            disabled={scrub.data?.status === "running"}
            onClick={() => start.mutate()}
          >
            Read everything now
          </Button>
        )
      }
    >
      <Asked query={scrub}>
        {(one) => (
          <>
            <Paper withBorder p="md" radius="md">
              <Stack gap="xs" aria-live="polite">
                <Group gap="sm">
                  <StateBadge {...STATES[one.status]} />
                  <Text size="sm" c="dimmed">
                    last full pass: <RelativeTime at={one.ended_at} both never="never" />
                  </Text>
                </Group>
                <Text size="sm">{scrubInWords(one)}</Text>
                {one.status === "running" && (
                  <Progress value={scrubShare(one) ?? 100} aria-label={scrubInWords(one)} />
                )}
              </Stack>
            </Paper>
            {one.damages.length > 0 && (
              <DataTable
                label="Damaged files"
                columns={COLUMNS}
                rows={one.damages}
                rowKey={(row) => row.path}
                sortName="damages-sort"
                minWidth={860}
              />
            )}
          </>
        )}
      </Asked>
      <CliHint words={["cbp", "scrub", dataflow]} />
    </Section>
  );
}
