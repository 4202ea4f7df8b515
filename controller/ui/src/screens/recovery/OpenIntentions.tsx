import { Text } from "@mantine/core";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import type { components } from "@/api/schema";
import { Asked } from "@/components/Asked";
import { DataTable, Pager, type Column } from "@/components/DataTable";
import { Nothing } from "@/components/Nothing";
import { RelativeTime } from "@/components/RelativeTime";
import { Section } from "@/components/Section";
import { formatCount, formatCounted } from "@/format/format";
import { usePaging } from "@/hooks/paging";

type Intention = components["schemas"]["IntentionOut"];

const COLUMNS: readonly Column<Intention>[] = [
  { id: "stage", header: "Stage", render: (row) => row.stage },
  { id: "epoch", header: "Epoch", align: "right", render: (row) => formatCount(row.epoch) },
  { id: "since", header: "Committed", render: (row) => <RelativeTime at={row.since} both /> },
  { id: "records", header: "Records", align: "right", render: (row) => formatCount(row.records) },
  {
    id: "waits",
    header: "Waits for",
    render: (row) =>
      row.waits_for === "publication" ? (
        "the next publication"
      ) : (
        <Text span size="sm">
          another try (failed so far: {row.tries}): {row.because}
        </Text>
      ),
  },
  { id: "tables", header: "Tables that will change", render: (row) => row.tables.join(", ") },
];

/** What is committed and not yet published. */
export function OpenIntentions({ dataflow }: { dataflow: string }) {
  const paging = usePaging("intentions");
  const intentions = useApi(["intentions", dataflow, paging.cursor], () =>
    client.GET("/api/v1/dataflows/{name}/intentions", {
      params: { path: { name: dataflow }, query: { cursor: paging.cursor } },
    }),
  );
  return (
    <Section
      title="Open intentions"
      lead="Committed runs that readers of the tables do not see yet. A crash loses none of them."
    >
      <Asked query={intentions}>
        {(page) => (
          <DataTable
            label="Runs that are not published yet"
            columns={COLUMNS}
            rows={page.items}
            rowKey={(row) => `${row.stage}/${row.epoch}`}
            sortName="intentions-sort"
            empty={<Nothing>The tables show every committed run.</Nothing>}
            paging={
              page.cursor !== null || paging.cursor !== undefined ? (
                <Pager
                  list="open runs"
                  shown={formatCounted(page.items.length, "intention")}
                  first={paging.first}
                  back={paging.back}
                  next={paging.next(page.cursor)}
                />
              ) : undefined
            }
          />
        )}
      </Asked>
    </Section>
  );
}
