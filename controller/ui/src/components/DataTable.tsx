import { Box, Button, Checkbox, Group, Table, Text, UnstyledButton } from "@mantine/core";
import type { KeyboardEvent, ReactNode } from "react";

import { sortRows, parseSort, toggleSort, type SortValue } from "@/components/sortRows";
import { Icon } from "@/components/Icon";
import { useUrlState } from "@/hooks/urlState";

export interface Column<Row> {
  id: string;
  header: string;
  render: (row: Row) => ReactNode;
  /** By which value the rows are sorted; without it the column cannot be sorted by. */
  sort?: (row: Row) => SortValue;
  align?: "left" | "right";
  width?: number | string;
}

interface Selection {
  chosen: ReadonlySet<string>;
  onChange: (chosen: Set<string>) => void;
  /** What one row is, for those who hear the page: "run 17". */
  label: (key: string) => string;
}

interface DataTableProps<Row> {
  /** What the table holds, for those who hear the page. */
  label: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  rowKey: (row: Row) => string;
  /** Called by a click on a row, and by Enter. Give a link in a cell as well. */
  onOpen?: (row: Row) => void;
  selection?: Selection;
  /** What is shown in place of no rows. */
  empty?: ReactNode;
  /** Name in the address of the order; two tables of a screen have two names. */
  sortName?: string;
  /** The order at first: "lag", or "-lag" for the largest first; "" for the order in which the service gives them. */
  sortDefault?: string;
  /** Below which width the table scrolls sideways. */
  minWidth?: number;
  /** Buttons for the pages of a list; see `usePaging`. */
  paging?: ReactNode;
}

/** A table: sorted by its columns, usable by keyboard, scrolled sideways on a small display. */
export function DataTable<Row>({
  label,
  columns,
  rows,
  rowKey,
  onOpen,
  selection,
  empty,
  sortName = "sort",
  sortDefault = "",
  minWidth = 640,
  paging,
}: DataTableProps<Row>) {
  const [order, setOrder] = useUrlState(sortName, sortDefault);
  if (rows.length === 0 && empty !== undefined) {
    return (
      <>
        {empty}
        {paging}
      </>
    );
  }
  const { id: sortedBy, descending } = parseSort(order);
  const sorter = columns.find((column) => column.id === sortedBy)?.sort;
  const shown = sorter === undefined ? rows : sortRows(rows, sorter, descending);
  const keys = shown.map(rowKey);
  return (
    <Box>
      <Box
        style={{ overflowX: "auto" }}
        tabIndex={0}
        role="region"
        aria-label={label}
      >
        <Table
          miw={minWidth}
          verticalSpacing={6}
          horizontalSpacing="sm"
          highlightOnHover={onOpen !== undefined}
          aria-label={label}
        >
          <Table.Thead>
            <Table.Tr>
              {selection !== undefined && (
                <Table.Th w={36}>
                  <ChooseAll keys={keys} selection={selection} />
                </Table.Th>
              )}
              {columns.map((column) => (
                <HeaderCell
                  key={column.id}
                  column={column}
                  sorted={column.id === sortedBy ? (descending ? "descending" : "ascending") : "none"}
                  onSort={() => setOrder(toggleSort(order, column.id))}
                />
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {shown.map((row) => {
              const key = rowKey(row);
              return (
                <Table.Tr
                  key={key}
                  data-row={key}
                  tabIndex={onOpen === undefined ? undefined : 0}
                  style={onOpen === undefined ? undefined : { cursor: "pointer" }}
                  onClick={
                    onOpen === undefined
                      ? undefined
                      : (event) => {
                          if (!isControl(event.target)) onOpen(row);
                        }
                  }
                  onKeyDown={(event) => moveInRows(event, onOpen === undefined ? undefined : () => onOpen(row))}
                >
                  {selection !== undefined && (
                    <Table.Td>
                      <ChooseOne id={key} selection={selection} />
                    </Table.Td>
                  )}
                  {columns.map((column) => (
                    <Table.Td
                      key={column.id}
                      ta={column.align ?? "left"}
                      className={column.align === "right" ? "numeric" : undefined}
                    >
                      {column.render(row)}
                    </Table.Td>
                  ))}
                </Table.Tr>
              );
            })}
          </Table.Tbody>
        </Table>
      </Box>
      {paging}
    </Box>
  );
}

function HeaderCell<Row>({
  column,
  sorted,
  onSort,
}: {
  column: Column<Row>;
  sorted: "ascending" | "descending" | "none";
  onSort: () => void;
}) {
  const label = (
    <Text span size="xs" fw={600} c="dimmed">
      {column.header}
    </Text>
  );
  return (
    <Table.Th
      ta={column.align ?? "left"}
      w={column.width}
      aria-sort={column.sort === undefined ? undefined : sorted}
      style={{ whiteSpace: "nowrap" }}
    >
      {column.sort === undefined ? (
        label
      ) : (
        <UnstyledButton onClick={onSort} title={`Sort by ${column.header.toLowerCase()}`}>
          <Group gap={2} wrap="nowrap" display="inline-flex">
            {label}
            {sorted !== "none" && <Icon name={sorted === "ascending" ? "up" : "down"} size={12} />}
          </Group>
        </UnstyledButton>
      )}
    </Table.Th>
  );
}

function ChooseAll({ keys, selection }: { keys: readonly string[]; selection: Selection }) {
  const chosen = keys.filter((key) => selection.chosen.has(key)).length;
  return (
    <Checkbox
      size="xs"
      aria-label="Choose all rows of this page"
      checked={chosen > 0 && chosen === keys.length}
      indeterminate={chosen > 0 && chosen < keys.length}
      onChange={(event) => selection.onChange(new Set(event.currentTarget.checked ? keys : []))}
    />
  );
}

function ChooseOne({ id, selection }: { id: string; selection: Selection }) {
  return (
    <Checkbox
      size="xs"
      aria-label={`Choose ${selection.label(id)}`}
      checked={selection.chosen.has(id)}
      onChange={(event) => {
        const next = new Set(selection.chosen);
        if (event.currentTarget.checked) next.add(id);
        else next.delete(id);
        selection.onChange(next);
      }}
    />
  );
}

function isControl(target: EventTarget): boolean {
  return target instanceof Element && target.closest("a, button, input, label, summary") !== null;
}

function moveInRows(event: KeyboardEvent<HTMLTableRowElement>, open: (() => void) | undefined): void {
  if (event.target !== event.currentTarget) return;
  const row = event.currentTarget;
  const next = event.key === "ArrowDown" ? row.nextElementSibling : row.previousElementSibling;
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    if (next instanceof HTMLElement) next.focus();
  } else if (event.key === "Enter" && open !== undefined) {
    open();
  }
}

/** Buttons for the pages of a list: the first one, the one before, the next one. */
export function Pager({
  list,
  shown,
  first,
  back,
  next,
  firstWord = "Newest",
}: {
  /** What the pages are of; a screen may have several lists, and assistive technology distinguishes them by it. */
  list: string;
  /** "100 runs", for example. */
  shown: string;
  first: (() => void) | undefined;
  back: (() => void) | undefined;
  next: (() => void) | undefined;
  /** What is on the first page, of a list that does not begin with the newest. */
  firstWord?: string;
}) {
  return (
    <Group justify="space-between" mt="xs" component="nav" aria-label={`Pages: ${list}`}>
      <Text size="xs" c="dimmed">
        {shown}
      </Text>
      {/* A list of one page needs no buttons. */}
      <Group gap="xs" display={first === undefined && back === undefined && next === undefined ? "none" : undefined}>
        <Button size="compact-sm" variant="default" disabled={first === undefined} onClick={first}>
          {firstWord}
        </Button>
        <Button size="compact-sm" variant="default" disabled={back === undefined} onClick={back}>
          Back
        </Button>
        <Button size="compact-sm" variant="default" disabled={next === undefined} onClick={next}>
          Next
        </Button>
      </Group>
    </Group>
  );
}
