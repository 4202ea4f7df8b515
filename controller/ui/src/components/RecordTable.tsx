import { Anchor, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { Link } from "react-router";

import { writeExact } from "@/api/exactJson";
import type { DataRecord } from "@/api/records";
import { DataTable, type Column } from "@/components/DataTable";

/** A value of a record as text; null, empty and white text look different. */
export function DataValue({ value }: { value: unknown }) {
  if (value === null || value === undefined) {
    return (
      <Text span c="dimmed" fs="italic" inherit>
        null
      </Text>
    );
  }
  if (typeof value === "string") {
    if (value.trim() !== value || value === "") return <code>{JSON.stringify(value)}</code>;
    return <span style={{ overflowWrap: "anywhere", whiteSpace: "pre-wrap" }}>{shorten(value)}</span>;
  }
  return <code>{shorten(writeExact(value))}</code>;
}

const SHOWN_MAX = 500;

/** Long values are cut; the whole one is in the download. */
function shorten(text: string): string {
  return text.length <= SHOWN_MAX ? text : `${text.slice(0, SHOWN_MAX)}… (${text.length} characters)`;
}

/** The names of the columns: those of the schema first, then what records hold besides. */
export function columnsOf(known: readonly string[], records: readonly DataRecord[]): string[] {
  const names = new Set(known);
  for (const record of records) for (const name of Object.keys(record)) names.add(name);
  return [...names];
}

/** Records by column. */
export function RecordTable({
  label,
  known = [],
  records,
  paging,
  empty,
  onOpen,
  linkTo,
}: {
  label: string;
  /** Columns in their order, if they are known. */
  known?: readonly string[];
  records: readonly DataRecord[];
  paging?: ReactNode;
  empty?: ReactNode;
  onOpen?: (record: DataRecord) => void;
  /** Where the value of a column leads; undefined: it is no link. */
  linkTo?: (column: string, record: DataRecord) => string | undefined;
}) {
  const rows = records.map((record, number) => ({ record, number }));
  const columns: Column<(typeof rows)[number]>[] = columnsOf(known, records).map((name) => {
    const isNumber = records.some((one) => typeof one[name] === "number" || typeof one[name] === "bigint");
    return {
      id: name,
      header: name === "_epoch" ? "Epoch" : name,
      align: isNumber ? "right" : "left",
      render: ({ record }) => {
        const to = linkTo?.(name, record);
        const value = <DataValue value={record[name]} />;
        return to === undefined ? value : <Anchor component={Link} to={to} size="sm">{value}</Anchor>;
      },
    };
  });
  return (
    <DataTable
      label={label}
      columns={columns}
      rows={rows}
      rowKey={({ number }) => String(number)}
      minWidth={Math.max(320, columns.length * 110)}
      paging={paging}
      empty={empty}
      {...(onOpen === undefined ? {} : { onOpen: ({ record }: (typeof rows)[number]) => onOpen(record) })}
    />
  );
}
