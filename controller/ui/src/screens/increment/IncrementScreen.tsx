import { Anchor, Box, Code, Group, Table, Text, Title } from "@mantine/core";
import { Link, useParams } from "react-router";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import { Pager } from "@/components/DataTable";
import { EmptyState } from "@/components/EmptyState";
import { Loading } from "@/components/Loading";
import { Page } from "@/components/Page";
import { ProblemMessage } from "@/components/ProblemMessage";
import { RelativeTime } from "@/components/RelativeTime";
import { fileNamesOf } from "@/format/fileNames";
import { formatBytes, formatCounted } from "@/format/format";
import { usePaging } from "@/hooks/paging";
import { Origins } from "@/screens/increment/Origins";
import { parseExact, textOf, type RecordsPage } from "@/screens/increment/records";

const PAGE = 100;

/** The records of one increment, page by page, with the columns of its flow. */
export default function IncrementScreen() {
  const { dataflow = "", flow = "", index = "0" } = useParams();
  const paging = usePaging();
  const path = { name: dataflow, flow, index: Number(index) };
  const increment = useApi(
    ["increments", dataflow, flow, index],
    () => client.GET("/api/v1/dataflows/{name}/increments/{flow}/{index}", { params: { path } }),
    { follow: false },
  );
  const records = useApi(
    ["increments", dataflow, flow, index, "records", paging.cursor],
    async () => {
      const answer = await client.GET("/api/v1/dataflows/{name}/increments/{flow}/{index}/records", {
        params: { path, query: { limit: PAGE, cursor: paging.cursor } },
        parseAs: "text",
      });
      const { data, response, error } = answer;
      return {
        response,
        error,
        data: data === undefined ? undefined : (parseExact(data) as RecordsPage),
      };
    },
    { follow: false, keepPrevious: true },
  );
  const isSource = !flow.includes(".");
  const run = increment.data?.origin["run"];
  const files = fileNamesOf(increment.data?.origin ?? {});
  return (
    <Page
      title={`${flow}/${index}`}
      lead={
        increment.data === undefined ? undefined : (
          <Group gap="sm">
            <span>
              {formatCounted(increment.data.records, "record")}, {formatBytes(increment.data.bytes)}
            </span>
            <span>
              arrived <RelativeTime at={increment.data.created_at} />
            </span>
            {typeof run === "string" && (
              <span>
                written by{" "}
                <Anchor component={Link} to={`/runs/${run}`} size="sm">
                  run {run}
                </Anchor>
              </span>
            )}
            {files.length > 0 && <span>from {files.join(", ")}</span>}
          </Group>
        )
      }
      trail={
        isSource
          ? [{ to: `/dataflows/${dataflow}/sources?source=${encodeURIComponent(flow)}`, label: `Source ${flow}` }]
          : [{ to: `/dataflows/${dataflow}/stages/${flow.split(".")[0]}`, label: flow.split(".")[0] ?? "" }]
      }
      cli={["cbp", "increment", dataflow, flow, index]}
    >
      {increment.isError && <ProblemMessage error={increment.error} />}
      {typeof run === "string" && <Origins dataflow={dataflow} run={run} />}
      {typeof run === "string" && (
        <Title order={2} size="h4">
          Records
        </Title>
      )}
      {records.isError && !increment.isError && <ProblemMessage error={records.error} />}
      {records.isPending && <Loading rows={8} />}
      {records.data !== undefined && records.data.items.length === 0 && paging.cursor === undefined && (
        <EmptyState icon="table" title="This increment is empty">
          The run wrote nothing to this flow; readers see an epoch without changes.
        </EmptyState>
      )}
      {records.data !== undefined && records.data.items.length > 0 && <Records page={records.data} />}
      {records.data !== undefined && (
        <Pager
          list="records"
          shown={formatCounted(records.data.items.length, "record")}
          first={paging.first}
          back={paging.back}
          next={paging.next(records.data.cursor)}
        />
      )}
    </Page>
  );
}

function Records({ page }: { page: RecordsPage }) {
  const known = new Set(page.columns.map((column) => column.name));
  const others = Object.keys(page.items[0] ?? {}).filter((name) => !known.has(name));
  const columns = [...page.columns, ...others.map((name) => ({ name, type: "" }))];
  return (
    <Box style={{ overflowX: "auto" }} tabIndex={0} role="region" aria-label="Records">
      <Table verticalSpacing={4} aria-label="Records">
        <Table.Thead>
          <Table.Tr>
            {columns.map((column) => (
              <Table.Th key={column.name} style={{ whiteSpace: "nowrap" }}>
                {column.name}
                {column.type !== "" && (
                  <Text span size="xs" c="dimmed" fw={400} ml={6}>
                    {column.type}
                  </Text>
                )}
              </Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {page.items.map((record, row) => (
            <Table.Tr key={row}>
              {columns.map((column) => (
                <Table.Td key={column.name} style={{ verticalAlign: "top" }}>
                  {record[column.name] === null ? (
                    <Text span size="sm" c="dimmed" fs="italic">
                      null
                    </Text>
                  ) : (
                    <Code style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere", background: "none" }}>
                      {textOf(record[column.name])}
                    </Code>
                  )}
                </Table.Td>
              ))}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Box>
  );
}
