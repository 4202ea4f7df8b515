import { Button, Group, Paper, Progress, Stack, Text } from "@mantine/core";

import { client } from "@/api/client";
import { useAction } from "@/api/hooks";
import { ProblemError } from "@/api/problem";
import type { components } from "@/api/schema";
import { DataTable, type Column } from "@/components/DataTable";
import { Icon } from "@/components/Icon";
import { ProblemMessage } from "@/components/ProblemMessage";
import { Section } from "@/components/Section";
import { StateBadge } from "@/components/StateBadge";
import { formatCount, formatSeconds } from "@/format/format";
import { Differences } from "@/screens/verify/Differences";
import { Verdict } from "@/screens/verify/Verdict";
import { progressInWords, resultInWords } from "@/screens/verify/words";

type Verification = components["schemas"]["VerificationOut"];
type TableVerdict = components["schemas"]["TableVerdictOut"];

const COLUMNS: readonly Column<TableVerdict>[] = [
  { id: "table", header: "Table", sort: (row) => row.table, render: (row) => row.table },
  {
    id: "status",
    header: "Result",
    width: 130,
    sort: (row) => row.status,
    render: (row) => <TableStatus status={row.status} />,
  },
  {
    id: "kind",
    header: "Compared as",
    render: (row) => (row.within === "" ? row.kind : `${row.kind}, ${row.within}`),
  },
  { id: "records", header: "Records read", align: "right", render: (row) => formatCount(row.records) },
  {
    id: "differences",
    header: "Differing keys",
    align: "right",
    render: (row) => formatCount(row.differences),
  },
  {
    id: "remark",
    header: "Remark",
    render: (row) => row.because || (row.since === null ? "" : `checked from epoch ${row.since} onwards`),
  },
];

const TABLE_STATES: Record<TableVerdict["status"], { state: string; word: string }> = {
  open: { state: "waiting", word: "Not yet" },
  equal: { state: "ok", word: "Equal" },
  undecided: { state: "paused", word: "Undecided" },
  differs: { state: "failed", word: "Differs" },
  left_out: { state: "paused", word: "Left out" },
};

function TableStatus({ status }: { status: TableVerdict["status"] }) {
  const { state, word } = TABLE_STATES[status];
  return <StateBadge state={state} word={word} />;
}

/** One verification: how far it is, or what it found. */
export function Result({
  verification,
  canCancel,
}: {
  verification: Verification;
  canCancel: boolean;
}) {
  const cancel = useAction(
    () =>
      client.POST("/api/v1/verifications/{verification}/cancel", {
        params: { path: { verification: verification.id } },
      }),
    { done: "The verification ends; its results so far are kept" },
  );
  const differences = verification.tables.reduce((all, table) => all + table.differences, 0);
  return (
    <Section
      title={`Verification ${verification.id}`}
      actions={
        canCancel &&
        !verification.ended && (
          <Button
            variant="default"
            leftSection={<Icon name="stop" />}
            loading={cancel.isPending}
            onClick={() => cancel.mutate()}
          >
            Cancel
          </Button>
        )
      }
    >
      <Paper withBorder p="md" radius="md">
        <Stack gap="xs" aria-live="polite">
          <Group gap="sm">
            <Verdict status={verification.status} />
            <Text size="sm" c="dimmed">
              {formatSeconds(verification.seconds)}
            </Text>
          </Group>
          <Text size="sm">{resultInWords(verification)}</Text>
          {!verification.ended && <Far verification={verification} />}
        </Stack>
      </Paper>
      {verification.error !== null && <ProblemMessage error={failure(verification)} />}
      <DataTable
        label="Tables of the verification"
        columns={COLUMNS}
        rows={verification.tables}
        rowKey={(row) => row.table}
        sortName="tables-sort"
      />
      {differences > 0 && (
        <Differences
          verification={verification.id}
          tables={verification.tables.filter((one) => one.differences > 0).map((one) => one.table)}
          ended={verification.ended}
        />
      )}
    </Section>
  );
}

function Far({ verification }: { verification: Verification }) {
  const { done, total } = verification;
  const share = total > 0 ? (100 * done) / total : 100;
  return (
    <Progress
      value={share}
      animated={total === 0}
      striped={total === 0}
      aria-label={progressInWords(verification)}
    />
  );
}

/** Return the failure of a verification as any other refusal of the service. */
function failure(verification: Verification): ProblemError {
  const error = verification.error ?? {};
  const message = String(error["message"] ?? "");
  return new ProblemError({
    type: "",
    title: "The verification failed",
    status: 0,
    detail: message,
    instance: "",
    error_code: String(error["error_code"] ?? ""),
    message,
    details: (error["details"] ?? {}) as Record<string, unknown>,
  });
}
