import { Group, Paper, SimpleGrid, Stack, Text } from "@mantine/core";
import { lazy, Suspense, useMemo } from "react";

import { Icon } from "@/components/Icon";
import { Loading } from "@/components/Loading";
import { Section } from "@/components/Section";
import { plannedGraph } from "@/screens/register/plannedGraph";
import type { Validation } from "@/screens/register/useDocument";

const GraphCanvas = lazy(() =>
  import("@/screens/graph/GraphCanvas").then((module) => ({ default: module.GraphCanvas })),
);

const HEIGHT_MIN = 160;
const HEIGHT_MAX = 420;
const HEIGHT_OF_NODE = 24;

/** What a document describes: its graph, and every stage with what it reads and writes. */
export function WouldBe({ valid }: { valid: Validation }) {
  const graph = useMemo(() => plannedGraph(valid), [valid]);
  const outputs = (stage: string) =>
    Object.keys(valid.flows).filter((flow) => flow.startsWith(`${stage}.`));
  return (
    <Section title="What the document describes">
      <Suspense fallback={<Loading rows={4} />}>
        <GraphCanvas
          graph={graph}
          dataflow={valid.name}
          chosen=""
          onChoose={ignore}
          height={Math.min(HEIGHT_MAX, HEIGHT_MIN + HEIGHT_OF_NODE * graph.nodes.length)}
        />
      </Suspense>
      <SimpleGrid cols={{ base: 1, sm: 2 }} spacing="sm">
        {valid.sources.map((source) => (
          <Paper key={source} withBorder p="sm" radius="md">
            <Group gap="xs" wrap="nowrap">
              <Icon name="folder" />
              <Text fw={600}>{source}</Text>
              <Text size="xs" c="dimmed">
                source
              </Text>
            </Group>
            <Columns text={valid.flows[source] ?? ""} />
          </Paper>
        ))}
        {valid.stages.map((stage) => (
          <Paper key={stage} withBorder p="sm" radius="md">
            <Group gap="xs" wrap="nowrap">
              <Icon name="graph" />
              <Text fw={600}>{stage}</Text>
              <Text size="xs" c="dimmed">
                stage
              </Text>
            </Group>
            <Stack gap={2} mt={4}>
              {Object.entries(valid.wiring[stage] ?? {}).map(([input, flow]) => (
                <Text key={input} size="sm">
                  reads <strong>{flow}</strong> as {input}
                </Text>
              ))}
              {Object.entries(valid.lookups[stage] ?? {}).map(([lookup, table]) => (
                <Text key={lookup} size="sm">
                  looks up <strong>{table}</strong> as {lookup}
                </Text>
              ))}
              {outputs(stage).map((flow) => (
                <Text key={flow} size="sm" component="div">
                  writes <strong>{flow}</strong>
                  <Columns text={valid.flows[flow] ?? ""} />
                </Text>
              ))}
            </Stack>
          </Paper>
        ))}
      </SimpleGrid>
    </Section>
  );
}

function ignore() {
  // A stage that is not registered has no page of its own.
}

function Columns({ text }: { text: string }) {
  return (
    <Text size="xs" ff="monospace" c="dimmed" style={{ overflowWrap: "anywhere" }}>
      {text}
    </Text>
  );
}
