import { Anchor, Button, Group, Paper, Select, Stack, Text, Title } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMemo, useState } from "react";
import { Link, useNavigate, useParams } from "react-router";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import { problemOf } from "@/api/problem";
import { addressOf, download, exactly, type RecordsPage } from "@/api/records";
import type { components } from "@/api/schema";
import { DataTable, Pager, type Column } from "@/components/DataTable";
import { EmptyState } from "@/components/EmptyState";
import { Icon } from "@/components/Icon";
import { Loading } from "@/components/Loading";
import { Page } from "@/components/Page";
import { ProblemMessage } from "@/components/ProblemMessage";
import { RecordTable } from "@/components/RecordTable";
import { isNumeric, parseColumns, type SchemaColumn } from "@/format/columns";
import { formatBytes, formatCount, formatCounted } from "@/format/format";
import { usePaging } from "@/hooks/paging";
import { useUrlStates } from "@/hooks/urlState";
import { EpochChart } from "@/screens/results/EpochChart";
import { SinksSection } from "@/screens/results/SinksSection";

type Figures = components["schemas"]["IncrementFiguresOut"];

const PAGE = 50;

/** The newest records of a flow, and its figures over epochs. */
export default function ResultsScreen() {
  const { dataflow = "", flow: named } = useParams();
  const navigate = useNavigate();
  const detail = useApi(["dataflows", dataflow], () =>
    client.GET("/api/v1/dataflows/{name}", { params: { path: { name: dataflow } } }),
  );
  const flows = useMemo(() => flowsOf(detail.data), [detail.data]);
  const flow = named ?? Object.keys(flows)[0];
  const columns = parseColumns(flows[flow ?? ""] ?? "");
  return (
    <Page
      title="Results"
      titleText={`Results of ${dataflow}`}
      lead="The newest records of a flow, and its figures by epoch. Click an epoch to see its origins."
      wide
      cli={["cbp", "records", dataflow, flow ?? "FLOW", "--newest"]}
    >
      {detail.isError && <ProblemMessage error={detail.error} />}
      {detail.isPending && <Loading />}
      {flow !== undefined && (
        <>
          <Select
            label="Flow"
            maw={360}
            searchable
            allowDeselect={false}
            data={Object.keys(flows)}
            value={flow}
            onChange={(chosen) => chosen !== null && void navigate(`/dataflows/${dataflow}/results/${encodeURIComponent(chosen)}`)}
          />
          <OverEpochs key={`series:${flow}`} dataflow={dataflow} flow={flow} columns={columns} />
          <NewestRecords key={flow} dataflow={dataflow} flow={flow} columns={columns} />
          <SinksSection dataflow={dataflow} />
        </>
      )}
    </Page>
  );
}

function flowsOf(detail: components["schemas"]["DataflowDetail"] | undefined): Record<string, string> {
  if (detail === undefined) return {};
  const outputs = Object.fromEntries(detail.stages.flatMap((stage) => Object.entries(stage.outputs)));
  return { ...outputs, ...Object.fromEntries(detail.sources.map((source) => [source.name, source.columns])) };
}

function OverEpochs({ dataflow, flow, columns }: { dataflow: string; flow: string; columns: readonly SchemaColumn[] }) {
  const [view, setView] = useUrlStates({ column: "", as: "chart" });
  const numeric = columns.filter(isNumeric).map((column) => column.name);
  const column = numeric.includes(view.column) ? view.column : "";
  const query = { limit: 200, ...(column === "" ? {} : { column }) };
  const series = useApi(
    ["increments", dataflow, "series", flow, column],
    () =>
      client.GET("/api/v1/dataflows/{name}/flows/{flow}/series", {
        params: { path: { name: dataflow, flow }, query },
      }),
    { keepPrevious: true },
  );
  const items = series.data?.items ?? [];
  const epochs = useMemo(() => items.map((one) => one.index), [series.data]);
  const lines = useMemo(
    () =>
      column === ""
        ? [{ label: "Records", values: items.map((one) => one.records) }]
        : [
            { label: `mean of ${column}`, values: items.map((one) => one.mean) },
            { label: `maximum of ${column}`, values: items.map((one) => one.most) },
            { label: `minimum of ${column}`, values: items.map((one) => one.least) },
          ],
    [series.data, column],
  );
  const cut = items.some((one) => column !== "" && one.read < one.records);
  return (
    <Paper withBorder p="md" component="section" aria-label="Over epochs">
      <Group justify="space-between" align="flex-end" mb="sm">
        <Title order={2} size="h4">
          {column === "" ? "Records by epoch" : `${column} by epoch`}
        </Title>
        <Group gap="xs" align="flex-end">
          <Select
            size="xs"
            label="Show"
            data={[{ value: "", label: "Number of records" }, ...numeric.map((name) => ({ value: name, label: `Column ${name}` }))]}
            value={column}
            allowDeselect={false}
            onChange={(name) => setView({ column: name ?? "" })}
          />
          <Button size="xs" variant="default" onClick={() => setView({ as: view.as === "chart" ? "table" : "chart" })}>
            {view.as === "chart" ? "As a table" : "As a chart"}
          </Button>
        </Group>
      </Group>
      {series.isError && <ProblemMessage error={series.error} />}
      {series.isPending && <Loading />}
      {series.data !== undefined && items.length === 0 && (
        <Text size="sm" c="dimmed">
          No run has written to this flow yet.
        </Text>
      )}
      {items.length > 0 && view.as === "chart" && (
        <EpochChart label={`${lines.map((line) => line.label).join(", ")} over ${formatCounted(items.length, "epoch")}`} epochs={epochs} lines={lines} />
      )}
      {items.length > 0 && view.as !== "chart" && (
        <DataTable label="Figures by epoch" columns={figureColumns(column, dataflow, flow)} rows={[...items].reverse()} rowKey={(row) => String(row.index)} sortName="figures" minWidth={420} />
      )}
      {cut && (
        <Text size="xs" c="dimmed" mt="xs">
          Only the first records of large epochs are read; the table says how many.
        </Text>
      )}
    </Paper>
  );
}

/** The page of an increment: its records, and the files and runs that made it. */
function incrementOf(dataflow: string, flow: string, index: unknown): string {
  return `/dataflows/${dataflow}/increments/${flow}/${String(index)}`;
}

function figureColumns(column: string, dataflow: string, flow: string): Column<Figures>[] {
  const number = (id: "least" | "most" | "mean" | "total", header: string): Column<Figures> => ({
    id,
    header,
    align: "right",
    sort: (row) => row[id],
    render: (row) => (row[id] === null ? "–" : String(row[id])),
  });
  const sizes: Column<Figures>[] = [
    { id: "index", header: "Epoch", align: "right", sort: (row) => row.index, render: (row) => <Anchor component={Link} to={incrementOf(dataflow, flow, row.index)} size="sm">{formatCount(row.index)}</Anchor> },
    { id: "records", header: "Records", align: "right", sort: (row) => row.records, render: (row) => formatCount(row.records) },
    { id: "bytes", header: "Size", align: "right", sort: (row) => row.bytes, render: (row) => formatBytes(row.bytes) },
  ];
  if (column === "") return sizes;
  const read: Column<Figures> = { id: "read", header: "Read", align: "right", render: (row) => formatCount(row.read) };
  return [...sizes, read, number("least", "Least"), number("mean", "Mean"), number("most", "Most"), number("total", "Total")];
}

function NewestRecords({ dataflow, flow, columns }: { dataflow: string; flow: string; columns: readonly SchemaColumn[] }) {
  const paging = usePaging();
  const path = ["dataflows", dataflow, "flows", flow];
  const query = [["newest", true], ["limit", PAGE], ["cursor", paging.cursor]] as const;
  const records = useApi<RecordsPage>(
    ["records", dataflow, flow, paging.cursor],
    () => exactly<RecordsPage>(addressOf([...path, "records"], query)),
    { keepPrevious: true },
  );
  return (
    <Stack gap="xs" component="section" aria-label="Newest records">
      <Group justify="space-between">
        <Title order={2} size="h4">
          Newest records
        </Title>
        <Group gap="xs">
          {(["csv", "json"] as const).map((format) => (
            <DownloadButton key={format} format={format} name={`${dataflow}.${flow}.${format}`} address={addressOf([...path, "download"], [...query, ["format", format]])} />
          ))}
        </Group>
      </Group>
      {records.isError && <ProblemMessage error={records.error} />}
      {records.isPending && <Loading />}
      {records.data !== undefined && (
        <RecordTable
          label={`Newest records of ${flow}`}
          known={columns.map((column) => column.name)}
          records={records.data.items}
          linkTo={(column, record) => (column === "_epoch" ? incrementOf(dataflow, flow, record[column]) : undefined)}
          empty={<EmptyState title="No records yet">They appear here once a run has written some.</EmptyState>}
          paging={
            <Pager
              list="records"
              shown={formatCounted(records.data.items.length, "record")}
              first={paging.first}
              back={paging.back}
              next={paging.next(records.data.cursor)}
            />
          }
        />
      )}
    </Stack>
  );
}

function DownloadButton({ format, name, address }: { format: "csv" | "json"; name: string; address: string }) {
  const [busy, setBusy] = useState(false);
  const fetchFile = async () => {
    setBusy(true);
    try {
      await download(address, name);
    } catch (error) {
      const problem = problemOf(error);
      notifications.show({ title: problem.title, message: problem.message, color: "red", autoClose: false });
    } finally {
      setBusy(false);
    }
  };
  return (
    <Button size="compact-sm" variant="default" loading={busy} leftSection={<Icon name="file" size={14} />} onClick={() => void fetchFile()}>
      {`This page as ${format.toUpperCase()}`}
    </Button>
  );
}
