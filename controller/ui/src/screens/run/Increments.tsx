import { Anchor, Group, Text } from "@mantine/core";
import { Link } from "react-router";

import type { components } from "@/api/schema";
import { DataTable, type Column } from "@/components/DataTable";
import { Section } from "@/components/Section";
import { StateBadge } from "@/components/StateBadge";
import { fileNamesOf } from "@/format/fileNames";
import { formatBytes, formatCount, UNKNOWN } from "@/format/format";

type Account = components["schemas"]["AccountOut"];
type Consumed = components["schemas"]["Consumed"];
type Produced = components["schemas"]["ProducedOut"];
type Change = components["schemas"]["Change"];
type Cause = components["schemas"]["CauseOut"];
type Effect = components["schemas"]["EffectOut"];

/** Link to the records of an increment. */
function Increment({ dataflow, flow, index }: { dataflow: string; flow: string; index: number }) {
  return (
    <Anchor component={Link} to={`/dataflows/${dataflow}/increments/${flow}/${index}`} size="sm">
      {flow}/{index}
    </Anchor>
  );
}

function RunLink({ run }: { run: string }) {
  return (
    <Anchor component={Link} to={`/runs/${run}`} ff="monospace" size="sm">
      {run}
    </Anchor>
  );
}

/** What a run read and removed, and what caused it. */
export function Inputs({
  dataflow,
  status,
  consumed,
  causes,
}: {
  dataflow: string;
  status: string;
  consumed: readonly Consumed[];
  causes: readonly Cause[];
}) {
  const causeOf = (row: Consumed) =>
    causes.find((one) => one.input === row.input && one.flow === row.flow && one.index === row.index);
  const columns: readonly Column<Consumed>[] = [
    { id: "input", header: "Input", render: (row) => row.input },
    {
      id: "increment",
      header: "Increment",
      render: (row) =>
        row.frame ? (
          `frame ${row.index} of ${row.flow}${row.framing_key === null ? "" : ` (key ${row.framing_key})`}`
        ) : (
          <Increment dataflow={dataflow} flow={row.flow} index={row.index} />
        ),
    },
    { id: "records", header: "Records", align: "right", render: (row) => formatCount(row.records) },
    { id: "size", header: "Size", align: "right", render: (row) => formatBytes(row.bytes) },
    {
      id: "use",
      header: "Use",
      render: (row) => useOf(row, status),
    },
    { id: "cause", header: "Made by", render: (row) => <CauseText cause={causeOf(row)} /> },
  ];
  return (
    <Section title="Input">
      <DataTable
        label="Increments read"
        columns={columns}
        rows={consumed}
        rowKey={(row) => `${row.input}/${row.flow}/${row.index}`}
        empty={<Text size="sm">The run read no input.</Text>}
      />
    </Section>
  );
}

/** What became of an increment that a run took; a run that failed has removed nothing. */
function useOf(row: Consumed, status: string): string {
  if (status === "FAILED") return row.read ? "read, stays queued" : "stays queued";
  return row.read ? (row.removed ? "read, removed" : "read, kept") : "removed unread";
}

function CauseText({ cause }: { cause: Cause | undefined }) {
  if (cause === undefined) return UNKNOWN;
  if (cause.run !== null) return <RunLink run={cause.run} />;
  const files = fileNamesOf(cause.origin);
  return files.length > 0 ? `file ${files.join(", ")}` : UNKNOWN;
}

/** What a run wrote, and who read it. */
export function Outputs({
  dataflow,
  status,
  produced,
  effects,
}: {
  dataflow: string;
  status: string;
  produced: readonly Produced[];
  effects: readonly Effect[];
}) {
  const columns: readonly Column<Produced>[] = [
    {
      id: "increment",
      header: "Increment",
      render: (row) => <Increment dataflow={dataflow} flow={row.flow} index={row.index} />,
    },
    { id: "records", header: "Records", align: "right", render: (row) => formatCount(row.records) },
    { id: "size", header: "Size", align: "right", render: (row) => formatBytes(row.bytes) },
    {
      id: "effects",
      header: "Read by",
      render: (row) => (
        <EffectList dataflow={dataflow} effects={effects.filter((one) => one.flow === row.flow)} />
      ),
    },
  ];
  return (
    <Section title="Output">
      <DataTable
        label="Increments written"
        columns={columns}
        rows={produced}
        rowKey={(row) => row.flow}
        empty={
          <Text size="sm">
            {status === "FAILED"
              ? "No output: a failed run changes no table, and its input stays queued."
              : status === "INTENDED"
                ? "No output yet: all of it becomes visible at once when the run commits."
                : "No increment."}
          </Text>
        }
      />
    </Section>
  );
}

function EffectList({ dataflow, effects }: { dataflow: string; effects: readonly Effect[] }) {
  if (effects.length === 0) return <Text size="sm">no stage reads this flow</Text>;
  return (
    <Group gap="sm">
      {effects.map((one) => (
        <Group key={`${one.stage}.${one.input}`} gap={6} wrap="nowrap">
          <Anchor component={Link} to={`/dataflows/${dataflow}/stages/${one.stage}`} size="sm">
            {one.stage}
          </Anchor>
          {one.run !== null && <RunLink run={one.run} />}
          {one.run === null && one.waits && <StateBadge state="waiting" word="waiting in its queue" />}
        </Group>
      ))}
    </Group>
  );
}

/** Changes of tables, with the version since which readers see it. */
export function Changes({ account }: { account: Account }) {
  const columns: readonly Column<Change>[] = [
    {
      id: "table",
      header: "Table",
      render: (row) => `${row.table}${row.compaction ? " (compaction)" : ""}`,
    },
    {
      id: "version",
      header: "Since version",
      align: "right",
      render: (row) => account.versions[row.table] ?? "not published yet",
    },
    { id: "rows", header: "Rows added", align: "right", render: (row) => formatCount(row.rows_added) },
    { id: "deleted", header: "Rows deleted", align: "right", render: (row) => formatCount(row.rows_deleted) },
    { id: "files", header: "New files", align: "right", render: (row) => formatCount(row.files_added) },
    { id: "dropped", header: "Files dropped", align: "right", render: (row) => formatCount(row.files_dropped) },
  ];
  if (account.changes.length === 0 && account.recorded) return null;
  return (
    <Section title="Changes of tables">
      <DataTable
        label="Changes of tables"
        columns={columns}
        rows={account.changes}
        rowKey={(row) => `${row.table}${row.compaction}`}
        empty={
          <Text size="sm">
            {account.run.status === "COMMITTED"
              ? "The log no longer has the record of this run."
              : "No table has changed."}
          </Text>
        }
      />
    </Section>
  );
}
