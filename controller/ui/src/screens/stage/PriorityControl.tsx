import { Group, SegmentedControl, Text } from "@mantine/core";

import { client } from "@/api/client";
import { useAction } from "@/api/hooks";
import type { Priority } from "@/components/PriorityBadge";

const PRIORITIES: { value: Priority; label: string }[] = [
  { value: "low", label: "Low" },
  { value: "normal", label: "Normal" },
  { value: "high", label: "High" },
];

const SAYS =
  "A free slot goes to the stage that has waited longest. Waiting counts fourfold at high priority, and a quarter at low priority. " +
  "No stage starves, and results do not depend on the priority.";

interface PriorityControlProps {
  dataflow: string;
  /** The stage that leads the run: stages that run together have one priority. */
  stage: string;
  priority: Priority;
}

/** Which of three priorities a stage has, and what sets another one. */
export function PriorityControl({ dataflow, stage, priority }: PriorityControlProps) {
  const set = useAction(
    (wanted: Priority) =>
      client.PUT("/api/v1/dataflows/{name}/stages/{stage}/priority/{priority}", {
        params: { path: { name: dataflow, stage, priority: wanted } },
      }),
    { done: (_, wanted) => `${stage} has ${wanted} priority` },
  );
  return (
    <Group gap={6} wrap="nowrap" title={SAYS}>
      <Text size="sm" component="span" aria-hidden>
        Priority
      </Text>
      <SegmentedControl
        size="sm"
        aria-label="Priority"
        data={PRIORITIES}
        value={set.isPending ? set.variables : priority}
        disabled={set.isPending}
        onChange={(value) => set.mutate(value as Priority)}
      />
    </Group>
  );
}
