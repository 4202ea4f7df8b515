import { Anchor } from "@mantine/core";

import type { components } from "@/api/schema";
import { DataTable, type Column } from "@/components/DataTable";
import { EmptyState } from "@/components/EmptyState";
import { RelativeTime } from "@/components/RelativeTime";
import { Section } from "@/components/Section";
import { formatCount, formatSeconds } from "@/format/format";
import { Verdict } from "@/screens/verify/Verdict";

type Verification = components["schemas"]["VerificationOut"];

interface VerificationListProps {
  verifications: readonly Verification[];
  shown: string | undefined;
  onOpen: (verification: string) => void;
}

/** Earlier verifications, newest first. */
export function VerificationList({ verifications, shown, onOpen }: VerificationListProps) {
  const columns: readonly Column<Verification>[] = [
    {
      id: "id",
      header: "Verification",
      render: (row) => (
        <Anchor
          component="button"
          type="button"
          size="sm"
          aria-current={row.id === shown ? "true" : undefined}
          fw={row.id === shown ? 700 : 400}
          onClick={() => onOpen(row.id)}
        >
          {row.id}
        </Anchor>
      ),
    },
    { id: "began", header: "Began", render: (row) => <RelativeTime at={row.began_at} both /> },
    { id: "status", header: "Result", render: (row) => <Verdict status={row.status} /> },
    { id: "took", header: "Took", align: "right", render: (row) => formatSeconds(row.seconds) },
    {
      id: "input",
      header: "Input",
      render: (row) => (row.split === "increments" ? "increment by increment" : "all at once"),
    },
    {
      id: "differences",
      header: "Differing keys",
      align: "right",
      render: (row) => formatCount(row.tables.reduce((all, table) => all + table.differences, 0)),
    },
  ];
  return (
    <Section title="Verifications so far" lead="The last 20, also from before a restart of the service.">
      <DataTable
        label="Earlier verifications"
        columns={columns}
        rows={verifications}
        rowKey={(row) => row.id}
        sortName="verifications-sort"
        empty={
          <EmptyState icon="shield" title="Nothing has been verified yet">
            Press Verify to read the retained input again and compare every table, while runs continue.
          </EmptyState>
        }
      />
    </Section>
  );
}
