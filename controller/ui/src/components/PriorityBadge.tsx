import { Badge } from "@mantine/core";

import type { components } from "@/api/schema";
import { Icon } from "@/components/Icon";

export type Priority = components["schemas"]["StageOut"]["priority"];

/** A priority in words, with an arrow that says the same; nothing if it is normal. */
export function PriorityBadge({ priority }: { priority: Priority }) {
  if (priority === "normal") return null;
  return (
    <Badge
      variant="default"
      tt="none"
      radius="sm"
      miw="max-content"
      leftSection={<Icon name={priority === "high" ? "up" : "down"} size={12} />}
    >
      {priority === "high" ? "High priority" : "Low priority"}
    </Badge>
  );
}
