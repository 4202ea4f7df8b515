import { Text } from "@mantine/core";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import type { components } from "@/api/schema";
import { Asked } from "@/components/Asked";
import { DataTable, type Column } from "@/components/DataTable";
import { Nothing } from "@/components/Nothing";
import { RelativeTime } from "@/components/RelativeTime";
import { Section } from "@/components/Section";

type Rollback = components["schemas"]["RollbackOut"];

const COLUMNS: readonly Column<Rollback>[] = [
  { id: "generation", header: "Roll-back", align: "right", render: (row) => row.generation },
  { id: "at", header: "When", render: (row) => <RelativeTime at={row.at} both /> },
  { id: "by", header: "Who", render: (row) => row.by || "not given" },
  { id: "reason", header: "Why", render: (row) => <Text size="sm">{row.reason}</Text> },
  { id: "position", header: "To position", align: "right", render: (row) => row.position },
  {
    id: "undone",
    header: "Runs undone",
    render: (row) =>
      Object.entries(row.undone)
        .filter(([, runs]) => runs > 0)
        .map(([stage, runs]) => `${stage}: ${runs}`)
        .join(", ") || "none",
  },
];

/** Who took a dataflow back, when and why. */
export function PastRollbacks({ dataflow }: { dataflow: string }) {
  const rollbacks = useApi(["rollbacks", dataflow], () =>
    client.GET("/api/v1/dataflows/{name}/rollbacks", { params: { path: { name: dataflow } } }),
  );
  return (
    <Section title="Roll-backs so far" lead="Roll-backs and their reasons are stored permanently.">
      <Asked query={rollbacks}>
        {(page) => (
          <DataTable
            label="Roll-backs with person, time and reason"
            columns={COLUMNS}
            rows={page.items}
            rowKey={(row) => String(row.generation)}
            sortName="rollbacks-sort"
            empty={<Nothing>Nobody has rolled this dataflow back.</Nothing>}
          />
        )}
      </Asked>
    </Section>
  );
}
