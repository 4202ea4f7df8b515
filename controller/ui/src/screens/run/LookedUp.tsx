import { Anchor } from "@mantine/core";
import { Link } from "react-router";

import type { components } from "@/api/schema";
import { DataTable, type Column } from "@/components/DataTable";
import { Section } from "@/components/Section";
import { momentWords } from "@/components/runs/lookupMoment";

type Table = components["schemas"]["LookedUpTable"];

/** The tables that a run looked up, each as of a moment; nothing if it looked nothing up. */
export function LookedUp({ dataflow, tables }: { dataflow: string; tables: readonly Table[] }) {
  if (tables.length === 0) return null;
  const columns: readonly Column<Table>[] = [
    { id: "lookup", header: "Look-up", render: (row) => `${row.stage}.${row.lookup}` },
    {
      id: "table",
      header: "Table",
      render: (row) =>
        row.table === "" ? (
          "not in this version"
        ) : (
          <Anchor component={Link} to={`/dataflows/${dataflow}/state/${row.table.replace(".", "/")}`} size="sm">
            {row.table}
          </Anchor>
        ),
    },
    { id: "moment", header: "As of", render: (row) => momentWords(row) },
  ];
  return (
    <Section title="Look-ups">
      <DataTable label="Tables looked up" columns={columns} rows={tables} rowKey={(row) => `${row.stage}.${row.lookup}`} />
    </Section>
  );
}
