import { Box, Group, Stack, Text, Title } from "@mantine/core";
import { useId, type ReactNode } from "react";

/** One part of a screen: a heading, what it is about, what one can do, and its content. */
export function Section({
  title,
  lead,
  actions,
  children,
}: {
  title: string;
  lead?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
}) {
  const id = useId();
  return (
    <Box component="section" aria-labelledby={id}>
      <Stack gap="sm">
        <Group justify="space-between" align="flex-start" gap="sm">
          <Box style={{ minWidth: 0, flex: "1 1 16rem" }}>
            <Title order={2} size="h4" id={id}>
              {title}
            </Title>
            {lead !== undefined && (
              <Text component="div" size="sm" c="dimmed" mt={2}>
                {lead}
              </Text>
            )}
          </Box>
          {actions !== undefined && <Group gap="xs">{actions}</Group>}
        </Group>
        {children}
      </Stack>
    </Box>
  );
}
