import { Button, Group, Text, TextInput } from "@mantine/core";
import { useState } from "react";

import { client } from "@/api/client";
import { writeExact } from "@/api/exactJson";
import { useAction, useApi } from "@/api/hooks";
import { followJob, stepInWords } from "@/api/jobs";
import type { components } from "@/api/schema";
import { useSession } from "@/api/session";
import { Asked } from "@/components/Asked";
import { CliHint } from "@/components/CliHint";
import { DataTable, Pager, type Column } from "@/components/DataTable";
import { Section } from "@/components/Section";
import { formatCount, formatCounted } from "@/format/format";
import { usePaging } from "@/hooks/paging";

type Record_ = components["schemas"]["SetAsideOut"];
type GiveBackJob = components["schemas"]["GiveBackJobOut"];

const PAGE = 20;
const BEHIND = "set_aside_behind";

const COLUMNS: readonly Column<Record_>[] = [
  { id: "epoch", header: "Epoch", align: "right", width: 72, render: (row) => formatCount(row.epoch) },
  { id: "from", header: "From", width: "22%", render: (row) => <Wrapped>{from(row)}</Wrapped> },
  { id: "record", header: "Record", width: "30%", render: (row) => <Wrapped mono>{record(row)}</Wrapped> },
  {
    id: "error",
    header: "Error",
    render: (row) => <Wrapped dimmed={row.code === BEHIND}>{row.message}</Wrapped>,
  },
];

interface SetAsideProps {
  dataflow: string;
  stage: string;
  aside: components["schemas"]["SetAsideBrief"];
}

/** The records on which the stage's code fails: each with its error and its line, and what gives them back. */
export function SetAside({ dataflow, stage, aside }: SetAsideProps) {
  const { can } = useSession();
  const paging = usePaging("aside");
  const query = { limit: PAGE, cursor: paging.cursor ?? null };
  const list = useApi(
    ["set-aside", dataflow, stage, paging.cursor],
    () =>
      client.GET("/api/v1/dataflows/{name}/stages/{stage}/set-aside", {
        params: { path: { name: dataflow, stage }, query },
      }),
    { keepPrevious: true },
  );
  return (
    <Section
      title={`${formatCounted(aside.records, "record")} set aside`}
      lead="The code of the stage fails on these records, or they follow such a record of the same group. All other groups are processed. Fix the code, register it, then give the records back: they are applied in their original order, in one epoch."
    >
      <Asked query={list}>
        {(page) => (
          <DataTable
            label="Records that are set aside"
            columns={COLUMNS}
            rows={page.items}
            rowKey={(row) => `${row.epoch}/${row.number}`}
            sortName="aside-sort"
            minWidth={720}
            paging={
              aside.records > PAGE ? (
                <Pager
                  list="records that are set aside"
                  shown={formatCounted(page.items.length, "record")}
                  firstWord="First"
                  first={paging.first}
                  back={paging.back}
                  next={paging.next(page.cursor)}
                />
              ) : undefined
            }
          />
        )}
      </Asked>
      {can("operator") && <GiveBack dataflow={dataflow} stage={stage} />}
      <CliHint words={["cbp", "set-aside", dataflow, stage]} />
    </Section>
  );
}

/** The buttons that try what is set aside again, and that give it back. */
function GiveBack({ dataflow, stage }: { dataflow: string; stage: string }) {
  const { can } = useSession();
  const path = { name: dataflow, stage };
  const [reason, setReason] = useState("");
  const [job, setJob] = useState<GiveBackJob>();
  const look = (id: string) =>
    client.GET("/api/v1/dataflows/{name}/stages/{stage}/give-back/jobs/{job}", {
      params: { path: { ...path, job: id } },
    });
  const attempt = useAction(
    () =>
      followJob<GiveBackJob>(
        () => client.POST("/api/v1/dataflows/{name}/stages/{stage}/give-back/preview", { params: { path } }),
        look,
        setJob,
      ),
    { done: (answer) => said(answer, "would be applied", "would fail again") },
  );
  const give = useAction(
    () =>
      followJob<GiveBackJob>(
        () => client.POST("/api/v1/dataflows/{name}/stages/{stage}/give-back", { params: { path, query: { reason } } }),
        look,
        setJob,
      ),
    { done: (answer) => said(answer, "applied", "failed again"), onDone: () => setReason("") },
  );
  return (
    <>
      <Group gap="sm" align="end">
        <Button variant="default" loading={attempt.isPending} disabled={give.isPending} onClick={() => attempt.mutate()}>
          Try without changing anything
        </Button>
        {can("admin") && (
          <>
            <TextInput
              label="Reason, stored permanently"
              maxLength={1000}
              value={reason}
              onChange={(event) => setReason(event.currentTarget.value)}
              style={{ flex: "1 1 16rem", maxWidth: "32rem" }}
            />
            <Button
              disabled={reason.trim() === "" || attempt.isPending}
              loading={give.isPending}
              onClick={() => give.mutate()}
            >
              Give back
            </Button>
          </>
        )}
      </Group>
      {(attempt.isPending || give.isPending) && job !== undefined && (
        <Text size="sm" role="status">
          {stepInWords(job)}
        </Text>
      )}
    </>
  );
}

function Wrapped({ children, mono, dimmed }: { children: string; mono?: boolean; dimmed?: boolean }) {
  return (
    <Text size="sm" ff={mono ? "monospace" : undefined} c={dimmed ? "dimmed" : undefined} style={{ overflowWrap: "anywhere" }}>
      {children}
    </Text>
  );
}

function from({ file, line, input, increment }: Record_): string {
  if (file !== null) return line === null ? file : `${file}, line ${line}`;
  if (input === null) return "a timer";
  return increment === null ? input : `${input}, increment ${increment}`;
}

function record({ record: fields, key }: Record_): string {
  return writeExact(fields ?? key);
}

function said({ given_back: given }: GiveBackJob, done: string, left: string): string {
  if (given === null) return "";
  const failed = given.left > 0 ? `, ${formatCounted(given.left, "record")} ${left}` : "";
  return `${formatCounted(given.records, "record")} ${done}${failed}`;
}
