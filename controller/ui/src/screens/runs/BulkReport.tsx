import { ActionIcon, Anchor, Group, Paper, Table, Text, Title } from "@mantine/core";
import { Link } from "react-router";

import type { components } from "@/api/schema";
import { Icon } from "@/components/Icon";
import { formatCounted } from "@/format/format";

type Item = components["schemas"]["BulkItemOut"];

/** What became of each run of a request for many: some can be refused. */
export function BulkReport({
  title,
  done,
  items,
  onClose,
}: {
  title: string;
  done: string;
  items: readonly Item[];
  onClose: () => void;
}) {
  const refused = items.filter((item) => item.error !== null).length;
  return (
    <Paper withBorder p="sm" radius="sm" component="section" aria-label={`Report: ${title}`}>
      <Group justify="space-between" wrap="nowrap">
        <Title order={2} size="h5">
          {title}: {formatCounted(items.length - refused, "run")} {done}
          {refused > 0 ? `, ${refused} refused` : ""}
        </Title>
        <ActionIcon variant="subtle" onClick={onClose} aria-label="Close the report">
          <Icon name="close" size={16} />
        </ActionIcon>
      </Group>
      <Table verticalSpacing={2} aria-label={`Report of ${title}`}>
        <Table.Tbody>
          {items.map((item) => (
            <Table.Tr key={item.id}>
              <Table.Td w={220}>
                <Anchor component={Link} to={`/runs/${item.id}`} ff="monospace" size="sm">
                  {item.id}
                </Anchor>
              </Table.Td>
              <Table.Td>
                <Group gap={6} wrap="nowrap">
                  <Icon name={item.error === null ? "check" : "alert"} size={14} />
                  <Text span size="sm">
                    {item.error === null ? done : String(item.error["message"])}
                  </Text>
                </Group>
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Paper>
  );
}
