import { Anchor, Group, Paper, Stack, Text } from "@mantine/core";
import { Link } from "react-router";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import { Section } from "@/components/Section";
import { RelativeTime } from "@/components/RelativeTime";
import type { Run } from "@/components/runs/phases";
import { RunStatus } from "@/components/runs/RunStatus";
import { Timeline } from "@/components/runs/Timeline";

const SHOWN = 10;

/** The timeline of a run, and those of the other attempts of its epoch, each on its own axis. */
export function Attempts({ run }: { run: Run }) {
  const attempts = useApi(["runs", run.dataflow, run.stage, "epoch", run.epoch], () =>
    client.GET("/api/v1/runs", {
      params: {
        query: { dataflow: run.dataflow, stage: run.stage, epoch: run.epoch, limit: SHOWN + 1 },
      },
    }),
  );
  const others = (attempts.data?.items ?? []).filter((one) => one.id !== run.id);
  return (
    <>
      <Section title="Timeline">
        <Timeline run={run} />
      </Section>
      {others.length > 0 && (
        <Section
          title="Other attempts of this epoch"
          lead="Each attempt has its own time axis; the time between attempts is not shown."
        >
          <Stack gap="sm">
            {others.slice(0, SHOWN).map((other) => (
              <Paper key={other.id} withBorder p="sm" radius="sm">
                <Group gap="sm" mb="xs">
                  <Anchor component={Link} to={`/runs/${other.id}`} size="sm">
                    Attempt {other.attempt}
                  </Anchor>
                  <RunStatus status={other.status} error={other.error} />
                  <Text size="sm" c="dimmed" component="span">
                    <RelativeTime at={other.started_at} />
                  </Text>
                  {other.error !== null && (
                    <Text size="sm" component="span">
                      {String(other.error["error_code"])}
                    </Text>
                  )}
                </Group>
                <Timeline run={other} />
              </Paper>
            ))}
            {attempts.data?.cursor != null && (
              <Text size="sm" c="dimmed">
                There are more attempts; the list of runs has them all.
              </Text>
            )}
          </Stack>
        </Section>
      )}
    </>
  );
}
