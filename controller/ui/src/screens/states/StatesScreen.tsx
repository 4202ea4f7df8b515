import { Anchor, Text } from "@mantine/core";
import { Link, useParams } from "react-router";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import type { components } from "@/api/schema";
import { DataTable, Pager, type Column } from "@/components/DataTable";
import { EmptyState } from "@/components/EmptyState";
import { Loading } from "@/components/Loading";
import { Page } from "@/components/Page";
import { ProblemMessage } from "@/components/ProblemMessage";
import { RelativeTime } from "@/components/RelativeTime";
import { StateBadge } from "@/components/StateBadge";
import { formatBytes, formatCount, formatCounted, UNKNOWN } from "@/format/format";
import { usePaging } from "@/hooks/paging";
import { skewInWords } from "@/screens/stage/StateSizes";
import { keyInWords, kindInWords, stateRows, type StateRow } from "@/screens/states/stateRows";

type Correction = components["schemas"]["CorrectionOut"];

/** The states of a dataflow with their sizes, and what was corrected in them. */
export default function StatesScreen() {
  const { dataflow = "" } = useParams();
  const paging = usePaging("states");
  const path = { name: dataflow };
  const query = paging.cursor === undefined ? {} : { cursor: paging.cursor };
  const detail = useApi(["dataflows", dataflow], () => client.GET("/api/v1/dataflows/{name}", { params: { path } }));
  const sizes = useApi(
    ["states", dataflow, paging.cursor],
    () => client.GET("/api/v1/dataflows/{name}/states", { params: { path, query } }),
    { keepPrevious: true },
  );
  // Without sizes, as of code that is not the registered one, the states are named all the same.
  const rows = stateRows(detail.data?.stages ?? [], sizes.data?.items);
  const columns: Column<StateRow>[] = [
    {
      id: "state",
      header: "State",
      sort: (row) => `${row.stage}.${row.name}`,
      render: (row) => (
        <Anchor component={Link} to={`/dataflows/${dataflow}/state/${row.stage}/${row.name}`} fw={600}>
          {row.stage}.{row.name}
        </Anchor>
      ),
    },
    {
      id: "kind",
      header: "Kind",
      sort: (row) => row.declared?.kind ?? null,
      render: (row) => (row.declared === undefined ? UNKNOWN : kindInWords(row.declared)),
    },
    { id: "key", header: "Key", render: (row) => <code>{row.declared === undefined ? UNKNOWN : keyInWords(row.declared)}</code> },
    { id: "columns", header: "Columns", render: (row) => <code>{row.declared?.columns ?? UNKNOWN}</code> },
    { id: "grouping", header: "Grouping", render: (row) => row.declared?.grouping ?? UNKNOWN },
    {
      id: "records",
      header: "Records",
      align: "right",
      sort: (row) => row.size?.rows ?? null,
      render: (row) => formatCount(row.size?.rows),
    },
    {
      id: "size",
      header: "Size",
      align: "right",
      sort: (row) => row.size?.bytes ?? null,
      render: (row) => formatBytes(row.size?.bytes),
    },
    { id: "skew", header: "Skew", sort: (row) => row.size?.skew ?? null, render: (row) => skewInWords(row.size) },
  ];
  return (
    <Page
      title="State"
      titleText={`State of ${dataflow}`}
      lead="Records that stages keep between runs. Open a state to look up a key, see the history of the key, or correct its records."
      cli={["cbp", "state", dataflow]}
    >
      {detail.isError && <ProblemMessage error={detail.error} />}
      {sizes.isError && <ProblemMessage error={sizes.error} />}
      {(detail.isPending || sizes.isPending) && <Loading />}
      {detail.data !== undefined && !sizes.isPending && (
        <DataTable
          label="States"
          columns={columns}
          rows={rows}
          rowKey={(row) => `${row.stage}.${row.name}`}
          minWidth={1100}
          empty={<EmptyState icon="stack" title="No stage keeps state">A state appears here if a translator declares one.</EmptyState>}
          paging={
            <Pager
              list="states"
              shown={formatCounted(rows.length, "state")}
              first={paging.first}
              back={paging.back}
              next={paging.next(sizes.data?.cursor)}
              firstWord="First"
            />
          }
        />
      )}
      <Corrections dataflow={dataflow} />
    </Page>
  );
}

const CORRECTION_COLUMNS: readonly Column<Correction>[] = [
  { id: "at", header: "At", render: (row) => <RelativeTime at={row.at} /> },
  { id: "state", header: "State", render: (row) => (row.state === "" ? `${row.stage}: given back` : `${row.stage}.${row.state}`) },
  { id: "keys", header: "Keys", align: "right", render: (row) => formatCount(row.keys) },
  { id: "epoch", header: "Epoch", align: "right", render: (row) => formatCount(row.epoch) },
  { id: "by", header: "By", render: (row) => row.by || "–" },
  { id: "reason", header: "Reason", render: (row) => <Text size="sm" style={{ overflowWrap: "anywhere" }}>{row.reason}</Text> },
  { id: "undone", header: "Status", render: (row) => <StateBadge state={row.undone ? "skipped" : "accepted"} word={row.undone ? "Undone" : "In effect"} /> },
];

/** What operators corrected, newest first. */
function Corrections({ dataflow }: { dataflow: string }) {
  const paging = usePaging("corrections");
  const query = { limit: 20, ...(paging.cursor === undefined ? {} : { cursor: paging.cursor }) };
  const list = useApi(
    ["corrections", dataflow, paging.cursor],
    () => client.GET("/api/v1/dataflows/{name}/corrections", { params: { path: { name: dataflow }, query } }),
    { keepPrevious: true },
  );
  if (list.isError) return <ProblemMessage error={list.error} />;
  if (list.data === undefined || (list.data.items.length === 0 && paging.cursor === undefined)) return null;
  return (
    <section aria-label="What was corrected">
      <Text fw={600} component="h2" mb="xs">
        Corrections
      </Text>
      <DataTable
        label="Corrections"
        columns={CORRECTION_COLUMNS}
        rows={list.data.items}
        rowKey={(row) => row.run}
        sortName="corrected"
        paging={
          <Pager
            list="corrections"
            shown={formatCounted(list.data.items.length, "correction")}
            first={paging.first}
            back={paging.back}
            next={paging.next(list.data.cursor)}
          />
        }
      />
    </section>
  );
}
