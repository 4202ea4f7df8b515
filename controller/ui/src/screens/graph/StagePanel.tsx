import { Button, Code, Group, Paper, Select, Stack, Text, Title } from "@mantine/core";
import { Link } from "react-router";

import { useSession } from "@/api/session";
import { Icon } from "@/components/Icon";
import { PriorityBadge } from "@/components/PriorityBadge";
import { StateBadge } from "@/components/StateBadge";
import { formatSeconds } from "@/format/format";
import { useDataflowActions } from "@/screens/dataflows/actions";
import { LimitBar, Pending } from "@/screens/graph/FlowEdge";
import { lookupWords, wordsOf, type GraphNode, type Stage } from "@/screens/graph/model";

interface StagePanelProps {
  node: GraphNode;
  dataflow: string;
  steps: string;
  onSteps: (steps: string) => void;
  onExpand: () => void;
}

/** What one chooses in the graph: what it waits for or why it failed, and what helps. */
export function StagePanel({ node, dataflow, steps, onSteps, onExpand }: StagePanelProps) {
  const [stage] = node.stages;
  return (
    <Paper withBorder p="md" component="section" aria-label={`Chosen: ${node.name}`}>
      <Stack gap="sm">
        <Group justify="space-between">
          <Title order={2} size="h4">
            {node.name}
          </Title>
          <Select
            size="xs"
            w={190}
            aria-label="Neighbourhood"
            data={[
              { value: "", label: "Show the whole graph" },
              { value: "1", label: "Only stages 1 step away" },
              { value: "2", label: "Only stages up to 2 steps away" },
              { value: "3", label: "Only stages up to 3 steps away" },
            ]}
            value={steps}
            onChange={(value) => onSteps(value ?? "")}
            allowDeselect={false}
          />
        </Group>
        {node.kind === "group" && (
          <Group>
            <Text size="sm">{node.stages.map(({ name }) => name).join(", ")}</Text>
            <Button size="xs" variant="default" onClick={onExpand}>
              Draw its stages
            </Button>
          </Group>
        )}
        {node.kind === "stage" && stage !== undefined && <StageFacts stage={stage} dataflow={dataflow} />}
        {node.kind === "source" && (
          <Group>
            <Button size="xs" component={Link} to={`/dataflows/${dataflow}/sources`}>
              Files of this source
            </Button>
          </Group>
        )}
        {node.kind === "result" && (
          <Group>
            <Button size="xs" component={Link} to={`/dataflows/${dataflow}/results/${node.name}`}>
              Records of this result
            </Button>
          </Group>
        )}
      </Stack>
    </Paper>
  );
}

function StageFacts({ stage, dataflow }: { stage: Stage; dataflow: string }) {
  const { can } = useSession();
  const { retry } = useDataflowActions();
  const message = stage.error?.["message"];
  const code = stage.error?.["error_code"];
  const fails = stage.failures > 0 || stage.error !== null;
  return (
    <>
      <Group gap="sm">
        <StateBadge state={stage.state} />
        <PriorityBadge priority={stage.priority} />
        <Text size="sm">{wordsOf(stage)}</Text>
      </Group>
      {typeof message === "string" && (
        <div>
          <Code block style={{ whiteSpace: "pre-wrap" }}>
            {message}
          </Code>
          {typeof code === "string" && <Code>{code}</Code>}
        </div>
      )}
      {stage.queues.map((queue) => (
        <Group key={queue.input} gap="xs">
          <Text size="sm" fw={600}>
            {queue.input}
          </Text>
          <Text size="sm" c="dimmed">
            from {queue.flow}:
          </Text>
          <Text size="sm" component="div">
            {queue.unread === 0 ? "nothing waits" : <Pending queue={queue} />}
          </Text>
          <Text size="sm" component="div">
            <LimitBar queue={queue} words />
          </Text>
        </Group>
      ))}
      {stage.lookups.map((lookup) => (
        <Group key={lookup.name} gap="xs">
          <Text size="sm" fw={600}>
            {lookup.name}
          </Text>
          <Text size="sm" c="dimmed">
            looked up in {lookup.table}:
          </Text>
          <Text size="sm">{lookupWords(lookup)}</Text>
        </Group>
      ))}
      <Text size="sm" c="dimmed">
        Lag: {stage.lag_seconds === null ? "none" : formatSeconds(stage.lag_seconds)}. Next epoch:{" "}
        {stage.epoch}.
      </Text>
      <Group gap="xs">
        <Button
          size="xs"
          component={Link}
          to={`/dataflows/${dataflow}/stages/${stage.name}`}
          rightSection={<Icon name="forward" size={14} />}
        >
          Open the stage
        </Button>
        {fails && can("operator") && (
          <Button
            size="xs"
            variant="default"
            loading={retry.isPending}
            onClick={() => retry.mutate({ dataflow, stage: stage.runs_with })}
          >
            Retry now
          </Button>
        )}
      </Group>
    </>
  );
}
