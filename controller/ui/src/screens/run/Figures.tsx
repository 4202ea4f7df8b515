import { Paper, SimpleGrid, Stack, Table, Text } from "@mantine/core";

import { Section } from "@/components/Section";
import type { Run } from "@/components/runs/phases";
import { formatBytes, formatCount, formatSeconds } from "@/format/format";

const FIRST: readonly (readonly [string, string])[] = [
  ["records_in", "Records in"],
  ["records_out", "Records out"],
  ["groups", "Groups touched"],
  ["state_written", "State rows written"],
  ["state_removed", "State rows deleted"],
  ["bytes_in", "Bytes of input"],
  ["bytes_read", "Bytes read of state"],
  ["bytes_written", "Bytes written"],
  ["bytes_shuffled", "Bytes shuffled"],
  ["tasks", "Tasks"],
];

/** What a run counted: the figures that one asks for first, and all of them as a table. */
export function Figures({ run }: { run: Run }) {
  const names = Object.keys(run.figures).sort();
  if (names.length === 0) return null;
  return (
    <Section title="Figures">
      <SimpleGrid cols={{ base: 2, sm: 3, lg: 5 }} spacing="xs">
        {FIRST.filter(([name]) => run.figures[name] !== undefined).map(([name, words]) => (
          <Paper key={name} withBorder p="xs" radius="sm">
            <Stack gap={0}>
              <Text size="xs" c="dimmed">
                {words}
              </Text>
              <Text className="numeric">{textOf(name, run.figures[name] ?? 0)}</Text>
            </Stack>
          </Paper>
        ))}
      </SimpleGrid>
      <details>
        <summary>
          <Text span size="xs">
            All {names.length} figures
          </Text>
        </summary>
        <Table verticalSpacing={2} maw={520} aria-label="All figures">
          <Table.Tbody>
            {names.map((name) => (
              <Table.Tr key={name}>
                <Table.Th scope="row" fw={400}>
                  {name}
                </Table.Th>
                <Table.Td ta="right" className="numeric">
                  {textOf(name, run.figures[name] ?? 0)}
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </details>
    </Section>
  );
}

/** Return a figure with its unit, which its name gives. */
function textOf(name: string, value: number): string {
  const own = name.slice(name.lastIndexOf("/") + 1);
  if (own.startsWith("bytes_")) return formatBytes(value);
  if (own.startsWith("seconds_")) return formatSeconds(value);
  return formatCount(value);
}
