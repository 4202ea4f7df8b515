import { Anchor } from "@mantine/core";
import { Link } from "react-router";

import type { components } from "@/api/schema";
import { DataTable, type Column } from "@/components/DataTable";
import { Section } from "@/components/Section";
import { momentWords } from "@/components/runs/lookupMoment";

type Detail = components["schemas"]["StageDetail"];
type Lookup = components["schemas"]["LookupOut"];

/** The tables that a stage looks up, by what, and as of when; nothing if there are none. */
export function Lookups({ dataflow, detail }: { dataflow: string; detail: Detail }) {
  const { lookups, name } = detail.stage;
  if (lookups.length === 0) return null;
  const columns: readonly Column<Lookup>[] = [
    { id: "lookup", header: "Look-up", render: (row) => row.name },
    {
      id: "table",
      header: "Table",
      render: (row) => (
        <Anchor component={Link} to={`/dataflows/${dataflow}/state/${row.table.replace(".", "/")}`} size="sm">
          {row.table}
        </Anchor>
      ),
    },
    { id: "by", header: "Found by", render: (row) => row.by.join(", ") || "every group has all records" },
    { id: "key", header: "Single records by", render: (row) => row.key.join(", ") || "all of a group are read" },
    {
      id: "wakes",
      header: "When its records change",
      render: (row) => (row.wakes ? `groups are called (input ${row.name}_changes)` : "no group is called"),
    },
    { id: "moment", header: "The last run read", render: (row) => momentWords(detail.moments[row.name]) },
  ];
  return (
    <Section title="Look-ups" lead="Tables that the stage reads by key, without a queue; it never waits for them.">
      <DataTable
        label={`Look-ups of ${dataflow}.${name}`}
        columns={columns}
        rows={lookups}
        rowKey={(row) => row.name}
        minWidth={900}
      />
    </Section>
  );
}
