import { Group, Paper, Text } from "@mantine/core";
import type { ReactNode } from "react";

import { Icon } from "@/components/Icon";
import { TONES, type Tone } from "@/components/tones";

/** A box that says how things are; unlike an alert it is not read aloud over everything else. */
export function StatusBox({
  tone,
  title,
  label,
  children,
}: {
  tone: Tone;
  title: string;
  /** What it is about, for those who hear the page. */
  label: string;
  children?: ReactNode;
}) {
  const { color, icon } = TONES[tone];
  return (
    <Paper
      component="section"
      aria-label={label}
      p="sm"
      withBorder
      style={{
        borderLeft: `5px solid var(--mantine-color-${color}-filled)`,
        background: `var(--mantine-color-${color}-light)`,
      }}
    >
      <Group gap="sm" wrap="nowrap" align="flex-start">
        <span style={{ marginTop: 2 }}>
          <Icon name={icon} size={20} />
        </span>
        <div style={{ flex: 1, minWidth: 0 }}>
          <Text fw={650} role="status">
            {title}
          </Text>
          {children}
        </div>
      </Group>
    </Paper>
  );
}
