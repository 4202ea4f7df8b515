import { Badge } from "@mantine/core";
import type { ReactNode } from "react";

import { Icon } from "@/components/Icon";
import { TONES, type Tone } from "@/components/tones";

/** A word with an icon and a colour that say the same. */
export function ToneBadge({ tone, children }: { tone: Tone; children: ReactNode }) {
  const { color, icon } = TONES[tone];
  return (
    <Badge
      variant="light"
      color={color}
      tt="none"
      radius="sm"
      miw="max-content"
      leftSection={<Icon name={icon} size={12} />}
      styles={{ label: { color: "var(--mantine-color-text)" } }}
    >
      {children}
    </Badge>
  );
}
