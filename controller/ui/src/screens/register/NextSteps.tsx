import { Anchor, Button, FileButton, Group, Paper, Stack, Text } from "@mantine/core";
import { Link } from "react-router";

import { client } from "@/api/client";
import { useAction, useApi } from "@/api/hooks";
import type { components } from "@/api/schema";
import { Asked } from "@/components/Asked";
import { CliHint } from "@/components/CliHint";
import { EmptyState } from "@/components/EmptyState";
import { Icon } from "@/components/Icon";
import { formatCounted } from "@/format/format";

type Source = components["schemas"]["SourceOut"];
type Detail = components["schemas"]["DataflowDetail"];

/** What comes after a registration: the first file, and where its result is. */
export function NextSteps({ dataflow, onAnother }: { dataflow: string; onAnother: () => void }) {
  const detail = useApi(["dataflows", dataflow], () =>
    client.GET("/api/v1/dataflows/{name}", { params: { path: { name: dataflow } } }),
  );
  return (
    <Stack gap="lg">
      <EmptyState
        icon="check"
        title={`${dataflow} is registered`}
        actions={
          <>
            <Button component={Link} to={`/dataflows/${dataflow}`}>
              Open {dataflow}
            </Button>
            <Button variant="default" onClick={onAnother}>
              Register another
            </Button>
          </>
        }
      >
        The dataflow runs as soon as a file arrives. Send a file below, or let producers move complete
        files into the folder of a source.
      </EmptyState>
      <Asked query={detail}>
        {(one) => (
          <Stack gap="sm">
            {one.sources.map((source) => (
              <OneSource key={source.name} dataflow={dataflow} source={source} />
            ))}
            <Progress detail={one} />
          </Stack>
        )}
      </Asked>
    </Stack>
  );
}

function OneSource({ dataflow, source }: { dataflow: string; source: Source }) {
  const send = useAction(
    (file: File) =>
      client.POST("/api/v1/dataflows/{name}/sources/{source}/files", {
        params: { path: { name: dataflow, source: source.name }, query: { name: file.name } },
        body: file as never,
        bodySerializer: (body: unknown) => body as File,
        headers: { "Content-Type": "application/octet-stream" },
      }),
    { done: (_, file) => `${file.name} is accepted` },
  );
  return (
    <Paper withBorder p="md" radius="md">
      <Group justify="space-between" gap="sm">
        <div>
          <Text fw={600}>{source.name}</Text>
          <Text size="sm" c="dimmed">
            {source.format}: {source.columns}
          </Text>
        </div>
        <FileButton onChange={(file) => file !== null && send.mutate(file)}>
          {(props) => (
            <Button
              variant="default"
              leftSection={<Icon name="upload" />}
              loading={send.isPending}
              {...props}
            >
              Send a file to {source.name}
            </Button>
          )}
        </FileButton>
      </Group>
      <CliHint words={["cbp", "drop", dataflow, source.name, "FILE"]} />
    </Paper>
  );
}

function Progress({ detail }: { detail: Detail }) {
  return (
    <Paper withBorder p="md" radius="md" aria-live="polite">
      {detail.stages.map((stage) => (
        <Group key={stage.name} gap="xs">
          <Icon name={stage.epoch > 0 ? "check" : "clock"} />
          <Text size="sm">
            {stage.name}:{" "}
            {stage.epoch > 0
              ? `${formatCounted(stage.epoch, "run")} committed`
              : stage.waiting || "has not run yet"}
          </Text>
          {stage.epoch > 0 &&
            Object.keys(stage.outputs).map((flow) => (
              <Anchor
                key={flow}
                component={Link}
                size="sm"
                to={`/dataflows/${detail.summary.name}/results?flow=${encodeURIComponent(flow)}`}
              >
                Records of {flow}
              </Anchor>
            ))}
        </Group>
      ))}
    </Paper>
  );
}
