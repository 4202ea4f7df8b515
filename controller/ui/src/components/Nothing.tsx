import { Group, Paper, Text } from "@mantine/core";
import type { ReactNode } from "react";

import { Icon } from "@/components/Icon";

/** In place of an empty part of a screen: one line that says that this is in order, and why. */
export function Nothing({ children }: { children: ReactNode }) {
  return (
    <Paper withBorder px="md" py="sm" radius="md">
      <Group gap="sm" wrap="nowrap" c="dimmed">
        <Icon name="check" />
        <Text component="div" size="sm">
          {children}
        </Text>
      </Group>
    </Paper>
  );
}
