import { Group, Paper, Stack, Text, Title } from "@mantine/core";
import type { ReactNode } from "react";

import { Icon, type IconName } from "@/components/Icon";

/** What a list shows that has nothing: why, and what to do next. */
export function EmptyState({
  icon = "inbox",
  title,
  children,
  actions,
}: {
  icon?: IconName;
  title: string;
  children?: ReactNode;
  actions?: ReactNode;
}) {
  return (
    <Paper withBorder p="xl" radius="md">
      <Stack align="center" gap="sm" maw={640} mx="auto" ta="center">
        <Text c="dimmed" component="span">
          <Icon name={icon} size={36} />
        </Text>
        <Title order={2} size="h4">
          {title}
        </Title>
        {children !== undefined && (
          <Text component="div" size="sm" c="dimmed">
            {children}
          </Text>
        )}
        {actions !== undefined && (
          <Group gap="sm" justify="center">
            {actions}
          </Group>
        )}
      </Stack>
    </Paper>
  );
}
