import { Button, Code, Group, Paper, SimpleGrid, Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { useParams } from "react-router";

import { client } from "@/api/client";
import { useAction, useApi } from "@/api/hooks";
import { useSession } from "@/api/session";
import { Icon } from "@/components/Icon";
import { Loading } from "@/components/Loading";
import { Notice } from "@/components/Notice";
import { Page } from "@/components/Page";
import { ProblemMessage } from "@/components/ProblemMessage";
import { RelativeTime } from "@/components/RelativeTime";
import { AuthorError } from "@/components/runs/AuthorError";
import type { Run } from "@/components/runs/phases";
import { RunStatus } from "@/components/runs/RunStatus";
import { formatSeconds, UNKNOWN } from "@/format/format";
import { Attempts } from "@/screens/run/Attempts";
import { Figures } from "@/screens/run/Figures";
import { Changes, Inputs, Outputs } from "@/screens/run/Increments";
import { LookedUp } from "@/screens/run/LookedUp";
import { RunLog } from "@/screens/run/RunLog";
import { RunStack } from "@/screens/run/RunStack";

/** One run: where its time went, what it read and wrote, what caused it, why it failed. */
export default function RunScreen() {
  const { run: id = "" } = useParams();
  const path = { run: id };
  const run = useApi(["runs", id], () => client.GET("/api/v1/runs/{run}", { params: { path } }));
  const ended = run.data !== undefined && run.data.status !== "INTENDED";
  const account = useApi(
    ["runs", id, "account", run.data?.status],
    () => client.GET("/api/v1/runs/{run}/account", { params: { path } }),
    { enabled: run.data !== undefined, follow: !ended, keepPrevious: true },
  );
  const lineage = useApi(
    ["runs", id, "lineage", run.data?.status],
    () => client.GET("/api/v1/runs/{run}/lineage", { params: { path } }),
    { enabled: run.data !== undefined, keepPrevious: true },
  );
  const cancel = useAction(() => client.POST("/api/v1/runs/{run}/cancel", { params: { path } }), {
    done: "The run was asked to stop",
  });
  if (run.isError && run.data === undefined) {
    return (
      <Page title={`Run ${id}`} trail={[{ to: "/runs", label: "Runs" }]} cli={["cbp", "explain", "--run", id]}>
        <ProblemMessage error={run.error} />
      </Page>
    );
  }
  if (run.data === undefined) {
    return (
      <Page title={`Run ${id}`} trail={[{ to: "/runs", label: "Runs" }]}>
        <Loading rows={8} />
      </Page>
    );
  }
  const shown = run.data;
  return (
    <Page
      title={
        <Group gap="sm" component="span">
          <span>{`${shown.dataflow} / ${shown.stages.join(" + ")}, epoch ${shown.epoch}`}</span>
          <RunStatus status={shown.status} error={shown.error} />
        </Group>
      }
      titleText={`Run ${id}`}
      lead={account.data?.why}
      trail={[
        { to: "/runs", label: "Runs" },
        { to: `/dataflows/${shown.dataflow}`, label: shown.dataflow },
        { to: `/dataflows/${shown.dataflow}/stages/${shown.stage}`, label: shown.stage },
      ]}
      actions={<RunActions run={shown} cancelling={cancel.isPending} onCancel={() => cancel.mutate()} />}
      cli={["cbp", "explain", "--run", id]}
    >
      {cancel.isSuccess && shown.status === "COMMITTED" && (
        <Notice tone="warn" title="The run had finished before it could be cancelled">
          The result was already being recorded, and is in the tables. To undo it, roll the dataflow back.
        </Notice>
      )}
      {shown.error !== null && <AuthorError error={shown.error} dataflow={shown.dataflow} />}
      <Facts run={shown} version={account.data?.version} codes={account.data?.codes ?? {}} />
      {!ended && <RunStack run={id} />}
      <Attempts run={shown} />
      {account.isError && <ProblemMessage error={account.error} />}
      {account.data !== undefined && (
        <>
          <Inputs dataflow={shown.dataflow} status={shown.status} consumed={account.data.consumed} causes={lineage.data?.causes ?? []} />
          <LookedUp dataflow={shown.dataflow} tables={account.data.lookups} />
          <Outputs
            dataflow={shown.dataflow}
            status={shown.status}
            produced={account.data.produced}
            effects={lineage.data?.effects ?? []}
          />
          <Changes account={account.data} />
        </>
      )}
      <Figures run={shown} />
      <RunLog run={id} running={!ended} />
    </Page>
  );
}

function RunActions({ run, cancelling, onCancel }: { run: Run; cancelling: boolean; onCancel: () => void }) {
  const { can } = useSession();
  const retry = useAction(() => client.POST("/api/v1/runs/retry", { body: { runs: [run.id] } }), {
    done: (answer) => String(answer.items[0]?.error?.["message"] ?? "The stage is retried"),
  });
  if (!can("operator")) return null;
  if (run.status === "INTENDED") {
    return (
      <Button
        variant="default"
        leftSection={<Icon name="close" size={16} />}
        loading={cancelling}
        onClick={onCancel}
      >
        Cancel
      </Button>
    );
  }
  if (run.status !== "FAILED") return null;
  return (
    <Button
      variant="default"
      leftSection={<Icon name="refresh" size={16} />}
      loading={retry.isPending}
      onClick={() => retry.mutate()}
    >
      Retry
    </Button>
  );
}

function Facts({
  run,
  version,
  codes,
}: {
  run: Run;
  version: number | undefined;
  codes: Record<string, string>;
}) {
  const onSpark = run.lanes.some((lane) => lane === "spark" || lane === "sql");
  return (
    <Paper withBorder p="sm" radius="sm" component="section" aria-label="Facts">
      <SimpleGrid cols={{ base: 2, sm: 3, lg: 6 }} spacing="sm">
        <Fact name="Started">
          <RelativeTime at={run.started_at} />
        </Fact>
        <Fact name="Took">{run.seconds === null ? "under way" : formatSeconds(run.seconds)}</Fact>
        <Fact name="Age of oldest input">{formatSeconds(run.waited_seconds)}</Fact>
        <Fact name="Attempt">{run.attempt}</Fact>
        <Fact name="Lane">{run.lanes.join(", ") || UNKNOWN}</Fact>
        <Fact name="Version">{version ?? UNKNOWN}</Fact>
      </SimpleGrid>
      {Object.keys(codes).length > 0 && (
        <Text size="xs" c="dimmed" mt="xs" component="div">
          Code:{" "}
          {Object.entries(codes).map(([stage, code]) => (
            <span key={stage}>
              {stage} <Code>{code}</Code>{" "}
            </span>
          ))}
        </Text>
      )}
      {onSpark && (
        <Text size="xs" c="dimmed" mt={4}>
          Spark executed the jobs of this run. To see them in Spark&apos;s own web page, by the id of the run, set{" "}
          <Code>spark.ui.enabled</Code> in the setting <Code>spark_conf</Code>.
        </Text>
      )}
    </Paper>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <Stack gap={0}>
      <Text size="xs" c="dimmed">
        {name}
      </Text>
      <Text size="sm" component="div">
        {children}
      </Text>
    </Stack>
  );
}
