import { Button, Group, Progress, Stack, Text, TextInput } from "@mantine/core";
import { useState } from "react";

import { client } from "@/api/client";
import { useAction, useApi } from "@/api/hooks";
import { stepInWords } from "@/api/jobs";
import { ProblemError } from "@/api/problem";
import type { components } from "@/api/schema";
import { useSession } from "@/api/session";
import { Asked } from "@/components/Asked";
import { AskFirst } from "@/components/AskFirst";
import { CliHint } from "@/components/CliHint";
import { DataTable, type Column } from "@/components/DataTable";
import { Notice } from "@/components/Notice";
import { ProblemMessage } from "@/components/ProblemMessage";
import { RelativeTime } from "@/components/RelativeTime";
import { Section } from "@/components/Section";
import { formatCount } from "@/format/format";
import { ReachLine, useReach } from "@/screens/recovery/Reach";
import { seedsOf } from "@/screens/recovery/seeds";

type Rebuild = components["schemas"]["RebuildJobOut"];
type Difference = components["schemas"]["TableDifferenceOut"];
type Asking = "start" | "swap" | "back";

const PATH = "/api/v1/dataflows/{name}/rebuilds";
const ONE = "/api/v1/dataflows/{name}/rebuilds/{rebuild}";

const count = (records: number | null) => (records === null ? "not compared" : formatCount(records));

const COLUMNS: readonly Column<Difference>[] = [
  { id: "table", header: "Table", render: (row) => row.table },
  { id: "now", header: "Records now", align: "right", render: (row) => formatCount(row.before) },
  { id: "then", header: "Records then", align: "right", render: (row) => formatCount(row.after) },
  { id: "added", header: "Added", align: "right", render: (row) => row.because || count(row.added) },
  { id: "gone", header: "Gone", align: "right", render: (row) => count(row.gone) },
  { id: "changed", header: "Changed", align: "right", render: (row) => count(row.changed) },
];

/** Builds all tables anew beside the present ones, shows what differs, and swaps them in, or back. */
export function RebuildBeside({ dataflow }: { dataflow: string }) {
  const session = useSession();
  const [asking, setAsking] = useState<Asking>();
  const path = { name: dataflow };
  const rebuilds = useApi(["rebuilds", dataflow], () => client.GET(PATH, { params: { path } }), {
    every: (page) => (page?.items.some((one) => !one.ended) ? 2_000 : undefined),
  });
  const job = rebuilds.data?.items.find((one) => !one.ended);
  const last = rebuilds.data?.items[0];
  const shown = { notify: false } as const;
  const [seeds, setSeeds] = useState<Readonly<Record<string, string>>>({});
  const start = useAction((seed: string[]) => client.POST(PATH, { params: { path, query: { seed } } }), shown);
  const act = useAction(
    ({ rebuild, what }: { rebuild: string; what: "swap" | "cancel" }) =>
      client.POST(what === "swap" ? `${ONE}/swap` : `${ONE}/cancel`, { params: { path: { ...path, rebuild } } }),
    shown,
  );
  const back = useAction(() => client.POST(`${PATH}/back`, { params: { path } }), {
    ...shown,
    done: (answer) => `${dataflow} shows its tables from before the swap, at version ${answer.version}`,
  });
  const failed = [start, act, back].find((one) => one.isError);
  const may = session.can("admin");
  const until = rebuilds.data?.back_until;
  return (
    <Section
      title="Rebuild beside"
      lead="Recomputes all tables of the present version from the retained input. Meanwhile runs continue on the present tables, and readers see these until you swap the new ones in."
      actions={
        may && (
          <>
            {until !== null && until !== undefined && (
              <Button variant="default" loading={back.isPending} onClick={() => setAsking("back")}>
                Swap back
              </Button>
            )}
            <Button loading={start.isPending} disabled={rebuilds.data === undefined || job !== undefined} onClick={() => setAsking("start")}>
              Build new tables
            </Button>
          </>
        )
      }
    >
      <Asked query={rebuilds}>
        {() => (
          <Stack gap="sm">
            {job === undefined && <Text size="sm">No rebuild is under way.</Text>}
            {job === undefined && last !== undefined && <Ended job={last} />}
            {job === undefined && last?.error && <ProblemMessage error={new ProblemError(last.error)} />}
            {job === undefined && last?.status === "failed" && may && (
              <Group gap="xs">
                <Button variant="default" loading={act.isPending} onClick={() => act.mutate({ rebuild: last.id, what: "cancel" })}>
                  Dismiss
                </Button>
                <Text size="sm">Ends the alert of the failed rebuild. The present tables do not change.</Text>
              </Group>
            )}
            {until !== null && until !== undefined && (
              <Text size="sm">
                The tables from before the last swap are still kept, so the swap can be undone until <RelativeTime at={until} both />.
              </Text>
            )}
            {job !== undefined && (
              <UnderWay
                job={job}
                may={may}
                busy={act.isPending}
                onSwap={() => setAsking("swap")}
                onCancel={() => act.mutate({ rebuild: job.id, what: "cancel" })}
              />
            )}
            {failed !== undefined && <ProblemMessage error={failed.error} />}
          </Stack>
        )}
      </Asked>
      <CliHint words={["cbp", "rebuild", dataflow]} />
      {asking === "start" && (
        <AskFirst title={`Rebuild the tables of ${dataflow}?`} action="Build" harmless onClose={() => setAsking(undefined)} onConfirm={() => start.mutate(seedsOf(seeds))}>
          <ReachLine dataflow={dataflow} />
          <Seeds dataflow={dataflow} seeds={seeds} onChange={setSeeds} />
          Nothing that readers see changes until you swap the new tables in. The rebuild takes about as long as it took to apply all of this input, plus its pauses.
        </AskFirst>
      )}
      {asking === "swap" && job !== undefined && (
        <AskFirst title="Swap the new tables in?" action="Swap" onClose={() => setAsking(undefined)} onConfirm={() => act.mutate({ rebuild: job.id, what: "swap" })}>
          All tables of {dataflow} change at one time, to version {job.version}. Input that arrived meanwhile is applied first. A roll-back cannot go back beyond the swap, but the swap can be undone while the old tables are kept.
        </AskFirst>
      )}
      {asking === "back" && (
        <AskFirst title="Show the tables from before the swap?" action="Swap back" onClose={() => setAsking(undefined)} onConfirm={() => back.mutate()}>
          The earlier version and its code become current again, and apply the input that has arrived since.
        </AskFirst>
      )}
    </Section>
  );
}

interface SeedsProps {
  dataflow: string;
  seeds: Readonly<Record<string, string>>;
  onChange: (seeds: Readonly<Record<string, string>>) => void;
}

/** Ask for files in place of input that is gone, of each source that has lost some. */
function Seeds({ dataflow, seeds, onChange }: SeedsProps) {
  const reach = useReach(dataflow);
  return (
    <>
      {reach.data?.sources
        .filter((one) => !one.complete)
        .map(({ source }) => (
          <TextInput
            key={source}
            label={`Files that replace the removed input of ${source}`}
            description="A Parquet file, a folder of such files or a Delta table on the service's machine, below CBP_SOURCE_ROOTS. Without it the rebuild is refused."
            placeholder={`/archive/${source}`}
            value={seeds[source] ?? ""}
            onChange={(event) => onChange({ ...seeds, [source]: event.currentTarget.value })}
          />
        ))}
    </>
  );
}

/** What came of the last rebuild, which is kept over restarts. */
function Ended({ job }: { job: Rebuild }) {
  return (
    <Text size="sm">
      The last rebuild, for version {job.version}, {job.step} <RelativeTime at={job.ended_at} />
      {job.ended_by === "" ? "" : ` by ${job.ended_by}`}. {job.by === "" ? "" : `Requested by ${job.by}.`}
    </Text>
  );
}

interface UnderWayProps {
  job: Rebuild;
  may: boolean;
  busy: boolean;
  onSwap: () => void;
  onCancel: () => void;
}

function UnderWay({ job, may, busy, onSwap, onCancel }: UnderWayProps) {
  const ready = job.status === "ready";
  return (
    <Stack gap="sm">
      {ready ? (
        <Notice tone={job.exact ? "good" : "warn"} title={`New tables are ready, for version ${job.version}`}>
          {job.exact
            ? "The differences between the present tables and the new ones:"
            : "Some differences come from input that only the present or only the new tables have applied, since the dataflow did not become idle."}
        </Notice>
      ) : (
        <>
          <Text size="sm" role="status">
            {job.again_at === null ? stepInWords(job) : "The rebuild waits."}
          </Text>
          {job.share < 1 && (
            <Text size="sm">
              The rebuild works {Math.round(100 * job.share)} % of the time (CBP_REBUILD_SHARE), and pauses while {job.dataflow} runs. So far it has paused for{" "}
              {Math.round(job.rested)} of {Math.round(job.seconds)} s.
            </Text>
          )}
          {job.anew !== "" && <Text size="sm">The rebuild started over: {job.anew}.</Text>}
          {job.again_at === null ? (
            <Progress value={job.total > 0 ? (100 * job.done) / job.total : 100} animated aria-label="Progress of the rebuild" />
          ) : (
            <Text size="sm">
              The next attempt is <RelativeTime at={job.again_at} both />; it continues with the tables built so far.
            </Text>
          )}
        </>
      )}
      {ready && (
        <DataTable label="What the swap would change" columns={COLUMNS} rows={job.tables} rowKey={(row) => row.table} minWidth={620} sortName="rebuild-sort" />
      )}
      {job.error !== null && <ProblemMessage error={new ProblemError(job.error)} />}
      {may && (
        <Group gap="xs">
          {ready && (
            <Button loading={busy} onClick={onSwap}>
              Swap in
            </Button>
          )}
          <Button variant="default" loading={busy} disabled={job.status === "swapping"} onClick={onCancel}>
            Cancel the rebuild
          </Button>
        </Group>
      )}
    </Stack>
  );
}
