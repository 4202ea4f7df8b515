import { Box, Group, NativeSelect, Paper, Stack, Table, Text } from "@mantine/core";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import type { components } from "@/api/schema";
import { Asked } from "@/components/Asked";
import { CliHint } from "@/components/CliHint";
import { Pager } from "@/components/DataTable";
import { Icon } from "@/components/Icon";
import { Section } from "@/components/Section";
import { formatCounted } from "@/format/format";
import { usePaging } from "@/hooks/paging";
import { useUrlState } from "@/hooks/urlState";
import { comparedRows, type ComparedRow } from "@/screens/verify/words";

type Difference = components["schemas"]["DifferenceOut"];

const PAGE = 20;
const UNDER_WAY_MILLISECONDS = 2_000;

interface DifferencesProps {
  verification: string;
  tables: readonly string[];
  ended: boolean;
}

/** The keys that differ, record by record, with every column's expected and actual value. */
export function Differences({ verification, tables, ended }: DifferencesProps) {
  const [table, setTable] = useUrlState("table");
  const paging = usePaging("differences");
  const differences = useApi(
    ["differences", verification, table, paging.cursor],
    () =>
      client.GET("/api/v1/verifications/{verification}/differences", {
        params: {
          path: { verification },
          query: { limit: PAGE, cursor: paging.cursor, table: table === "" ? undefined : table },
        },
      }),
    { follow: !ended, every: () => UNDER_WAY_MILLISECONDS, keepPrevious: true },
  );
  return (
    <Section
      title="Differences"
      lead="Records of the recomputation, and the different records of the table. Up to 100 keys of a table are stored."
      actions={
        <NativeSelect
          aria-label="Table"
          value={table}
          onChange={(event) => {
            paging.first?.();
            setTable(event.currentTarget.value);
          }}
          data={[
            { value: "", label: "All tables" },
            ...tables.map((name) => ({ value: name, label: name })),
          ]}
        />
      }
    >
      <Asked query={differences}>
        {(page) => (
          <Stack gap="sm">
            {page.items.map((one) => (
              <OneDifference key={`${one.table}/${one.number}`} difference={one} />
            ))}
            <Pager
              list="differences"
              shown={formatCounted(page.items.length, "differing key")}
              first={paging.first}
              back={paging.back}
              next={paging.next(page.cursor)}
            />
          </Stack>
        )}
      </Asked>
      <CliHint words={["cbp", "differences", verification]} />
    </Section>
  );
}

function OneDifference({ difference }: { difference: Difference }) {
  const key = difference.key_columns
    .map((name, at) => `${name} = ${difference.key[at] ?? ""}`)
    .join(", ");
  const label = `${difference.table}: ${key}`;
  return (
    <Paper withBorder radius="md" p="sm">
      <Group gap="xs" mb={4}>
        <Text size="xs" c="dimmed">
          {difference.table}
        </Text>
        <Text size="sm" fw={600} ff="monospace" style={{ overflowWrap: "anywhere" }}>
          {key}
        </Text>
      </Group>
      <Box style={{ overflowX: "auto" }} tabIndex={0} role="region" aria-label={label}>
        <Table aria-label={label} verticalSpacing={4} withColumnBorders>
          <Table.Thead>
            <Table.Tr>
              <Table.Th w={90}>
                <Text span size="xs" c="dimmed">
                  Record
                </Text>
              </Table.Th>
              {difference.columns.map((column) => (
                <Table.Th key={column}>{column}</Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {comparedRows(difference).map((row, at) => (
              <OneRecord key={at} row={row} width={difference.columns.length} />
            ))}
          </Table.Tbody>
        </Table>
      </Box>
    </Paper>
  );
}

function OneRecord({ row, width }: { row: ComparedRow; width: number }) {
  return (
    <Table.Tr>
      <Table.Th scope="row">{row.side}</Table.Th>
      {row.cells.length === 0 && (
        <Table.Td colSpan={width}>
          <Text size="sm" c="dimmed">
            no record
          </Text>
        </Table.Td>
      )}
      {row.cells.map((cell) => (
        <Table.Td
          key={cell.column}
          style={
            cell.differs
              ? { background: `var(--mantine-color-${row.side === "expected" ? "teal" : "red"}-light)` }
              : undefined
          }
        >
          <Group gap={4} wrap="nowrap">
            {cell.differs && <Icon name="alert" size={12} label="differs:" />}
            <Text span size="sm" ff="monospace" fw={cell.differs ? 700 : 400}>
              {cell.value}
            </Text>
          </Group>
        </Table.Td>
      ))}
    </Table.Tr>
  );
}
