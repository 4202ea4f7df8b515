import { ActionIcon, Anchor, Button, Group, Text, TextInput, Tooltip } from "@mantine/core";
import { useEffect, type ReactNode } from "react";
import { Link, useNavigate } from "react-router";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import { useSession } from "@/api/session";
import { DataTable, type Column } from "@/components/DataTable";
import { EmptyState } from "@/components/EmptyState";
import { Icon } from "@/components/Icon";
import { Loading } from "@/components/Loading";
import { Page } from "@/components/Page";
import { ProblemMessage } from "@/components/ProblemMessage";
import { RelativeTime } from "@/components/RelativeTime";
import { Sparkline } from "@/components/Sparkline";
import { formatCompact, formatCount, formatCounted, formatSeconds } from "@/format/format";
import { useUrlState } from "@/hooks/urlState";
import { PAUSES, RESUMES, useDataflowActions } from "@/screens/dataflows/actions";
import { FirstSteps } from "@/screens/dataflows/FirstSteps";
import { FreshnessBadge } from "@/screens/dataflows/FreshnessBadge";
import { Headline } from "@/screens/dataflows/Headline";
import type { Dataflow, Freshness } from "@/screens/dataflows/health";

const FILTER_FROM = 6;

/** A dataflow, and whether it is up to date; undefined until the service has said so. */
type Row = Dataflow & { fresh: Freshness["dataflows"][number] | undefined };

const COLUMNS: readonly Column<Row>[] = [
  {
    id: "name",
    header: "Dataflow",
    sort: (row) => row.name,
    render: (row) => (
      <Anchor component={Link} to={`/dataflows/${row.name}`} fw={600}>
        {row.name}
      </Anchor>
    ),
  },
  {
    id: "state",
    header: "State",
    sort: (row) => row.state,
    render: (row) => <FreshnessBadge state={row.state} fresh={row.fresh} />,
  },
  {
    id: "lag",
    header: "Lag",
    align: "right",
    sort: (row) => row.lag_seconds ?? 0,
    render: (row) => (
      <Figure to={`/dataflows/${row.name}`} title="Age of the oldest increment that a stage has not processed; the graph shows why it waits">
        {row.lag_seconds === null ? "none" : formatSeconds(row.lag_seconds)}
      </Figure>
    ),
  },
  {
    id: "queued",
    header: "Queued",
    align: "right",
    sort: (row) => row.queued_records,
    render: (row) => (
      <Figure
        to={`/dataflows/${row.name}/increments?open=1`}
        title={`${formatCounted(row.queued_increments, "increment")}, ${formatCounted(row.queued_records, "record")} not applied yet; show them`}
      >
        {row.queued_increments === 0
          ? "nothing"
          : `${formatCompact(row.queued_increments)} (${formatCompact(row.queued_records)} rec.)`}
      </Figure>
    ),
  },
  {
    id: "success",
    header: "Last success",
    sort: (row) => row.last_success_at,
    render: (row) => (
      <Figure to={`/dataflows/${row.name}/results`} title="The newest results">
        <RelativeTime at={row.last_success_at} never="never" />
      </Figure>
    ),
  },
  {
    id: "failures",
    header: "Failures",
    align: "right",
    sort: (row) => row.failures,
    render: (row) => (
      <Figure to={`/runs?dataflow=${row.name}&status=FAILED`} title="Failed attempts in a row, over all stages; show the failed runs">
        {formatCount(row.failures)}
      </Figure>
    ),
  },
  {
    id: "quarantine",
    header: "Refused files",
    align: "right",
    sort: (row) => refusedOf(row),
    render: (row) => (
      <Figure
        to={`/dataflows/${row.name}/sources${refusedOf(row) > 0 ? "?status=quarantined" : ""}`}
        title="Files in quarantine; show the sources"
      >
        {formatCount(refusedOf(row))}
      </Figure>
    ),
  },
  {
    id: "recent",
    header: "Run time",
    render: (row) => <RunTimes dataflow={row} />,
  },
  { id: "actions", header: "Actions", align: "right", render: (row) => <Actions dataflow={row} /> },
];

function refusedOf(dataflow: Dataflow): number {
  return Object.values(dataflow.quarantined).reduce((sum, files) => sum + files, 0);
}

/** A figure that leads to what it counts. */
function Figure({ to, title, children }: { to: string; title: string; children: ReactNode }) {
  return (
    <Anchor component={Link} to={to} title={title} size="sm" c="inherit" underline="always" className="figure">
      {children}
    </Anchor>
  );
}

/** Fetch the code of the screen that mostly comes next, while nothing else is to be done. */
function prefetchGraph(): void {
  void import("@/screens/graph/GraphScreen");
}

/** Every dataflow, and whether it is up to date. */
export default function DataflowsScreen() {
  const navigate = useNavigate();
  const { can } = useSession();
  const [wanted, setWanted] = useUrlState("name");
  const dataflows = useApi(["dataflows"], () => client.GET("/api/v1/dataflows"));
  const freshness = useApi(["dataflows", "", "freshness"], () => client.GET("/api/v1/freshness"));
  const items = dataflows.data?.items ?? [];
  const judged = new Map(freshness.data?.dataflows.map((one) => [one.dataflow, one]));
  const hasItems = items.length > 0;
  useEffect(() => {
    if (hasItems) prefetchGraph();
  }, [hasItems]);
  const shown = items
    .filter((row) => row.name.includes(wanted.toLowerCase().trim()))
    .map((row) => ({ ...row, fresh: judged.get(row.name) }));
  return (
    <Page
      title="Dataflows"
      cli={["cbp", "status"]}
      wide
      actions={
        items.length > 0 &&
        can("operator") && (
          <Button component={Link} to="/register" leftSection={<Icon name="plus" size={16} />}>
            Register
          </Button>
        )
      }
    >
      {dataflows.isError && (
        <ProblemMessage error={dataflows.error} retry={() => void dataflows.refetch()} />
      )}
      {dataflows.isPending && <Loading />}
      {dataflows.data !== undefined && items.length === 0 && <FirstSteps />}
      {items.length > 0 && (
        <>
          {freshness.isError && <ProblemMessage error={freshness.error} />}
          {freshness.data !== undefined && <Headline dataflows={items} freshness={freshness.data} />}
          {items.length >= FILTER_FROM && (
            <TextInput
              aria-label="Filter by name"
              placeholder="Filter by name"
              leftSection={<Icon name="filter" size={16} />}
              value={wanted}
              onChange={(event) => setWanted(event.currentTarget.value)}
              maw={320}
            />
          )}
          <DataTable
            label="Dataflows"
            columns={COLUMNS}
            rows={shown}
            rowKey={(row) => row.name}
            onOpen={(row) => void navigate(`/dataflows/${row.name}`)}
            minWidth={960}
            empty={
              <EmptyState icon="search" title={`No dataflow has "${wanted}" in its name`}>
                Clear the filter to see all {items.length}.
              </EmptyState>
            }
          />
        </>
      )}
    </Page>
  );
}

function RunTimes({ dataflow }: { dataflow: Dataflow }) {
  const { recent } = dataflow;
  if (recent.length === 0) return <Text size="sm">no run yet</Text>;
  const last = recent[recent.length - 1];
  const failed = recent.filter(({ status }) => status === "FAILED").length;
  const label =
    `The last ${formatCounted(recent.length, "run")}: ` +
    `${formatSeconds(Math.min(...recent.map(({ seconds }) => seconds)))} to ` +
    `${formatSeconds(Math.max(...recent.map(({ seconds }) => seconds)))}, ${failed} failed`;
  return (
    <Group gap="xs" wrap="nowrap">
      <Sparkline
        values={recent.map(({ seconds }) => seconds)}
        failed={recent.map(({ status }) => status === "FAILED")}
        label={label}
      />
      <Figure to={`/runs?dataflow=${dataflow.name}`} title="Duration, input and output of each run">
        {formatSeconds(last?.seconds)}
      </Figure>
    </Group>
  );
}

function Actions({ dataflow }: { dataflow: Dataflow }) {
  const { can } = useSession();
  const { pause, resume } = useDataflowActions();
  if (!can("operator")) return null;
  const paused = dataflow.desired !== "running";
  const words = paused ? `Resume ${dataflow.name}` : `Pause ${dataflow.name}`;
  return (
    <Tooltip label={paused ? `Resume: ${RESUMES}` : `Pause: ${PAUSES}`}>
      <ActionIcon
        variant="default"
        aria-label={words}
        loading={pause.isPending || resume.isPending}
        onClick={() => (paused ? resume : pause).mutate(dataflow.name)}
      >
        <Icon name={paused ? "play" : "pause"} size={16} />
      </ActionIcon>
    </Tooltip>
  );
}
