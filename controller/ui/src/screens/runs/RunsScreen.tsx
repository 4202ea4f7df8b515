import { Anchor, Button, Group, Text } from "@mantine/core";
import { Link, useNavigate } from "react-router";

import { client } from "@/api/client";
import { useAction, useApi } from "@/api/hooks";
import { useSession } from "@/api/session";
import { DataTable, Pager, type Column } from "@/components/DataTable";
import { EmptyState } from "@/components/EmptyState";
import { Icon } from "@/components/Icon";
import { Loading } from "@/components/Loading";
import { Page } from "@/components/Page";
import { ProblemMessage } from "@/components/ProblemMessage";
import { RelativeTime } from "@/components/RelativeTime";
import type { Run } from "@/components/runs/phases";
import { RunStatus } from "@/components/runs/RunStatus";
import { formatCompact, formatCounted, formatSeconds, UNKNOWN } from "@/format/format";
import { usePaging } from "@/hooks/paging";
import { useUrlState, useUrlStates } from "@/hooks/urlState";
import { groupAttempts, type Attempt } from "@/screens/runs/attempts";
import { BulkReport } from "@/screens/runs/BulkReport";
import { DurationBar } from "@/screens/runs/DurationBar";
import { FilterBar } from "@/screens/runs/FilterBar";
import { commandOf, NO_FILTERS, queryOf } from "@/screens/runs/filters";

const PAGE = 100;

/** All runs, newest first: filtered by the service, cancelled or tried again many at once. */
export default function RunsScreen() {
  const navigate = useNavigate();
  const { can } = useSession();
  const [filters, setFilters] = useUrlStates(NO_FILTERS);
  const [chosenText, setChosen] = useUrlState("chosen");
  const paging = usePaging();
  const runs = useApi(
    ["runs", filters.dataflow, filters, paging.cursor],
    () =>
      client.GET("/api/v1/runs", {
        params: { query: { ...queryOf(filters, new Date()), cursor: paging.cursor, limit: PAGE } },
      }),
    { keepPrevious: true },
  );
  const cancel = useAction((ids: string[]) => client.POST("/api/v1/runs/cancel", { body: { runs: ids } }));
  const retry = useAction((ids: string[]) => client.POST("/api/v1/runs/retry", { body: { runs: ids } }));

  const items = runs.data?.items ?? [];
  const chosen = new Set(chosenText === "" ? [] : chosenText.split(","));
  const chosenRuns = items.filter((run) => chosen.has(run.id));
  const running = chosenRuns.filter((run) => run.status === "INTENDED").map((run) => run.id);
  const failed = chosenRuns.filter((run) => run.status === "FAILED").map((run) => run.id);
  const slowest = Math.max(0, ...items.map((run) => run.seconds ?? 0));
  const filtered = Object.values(filters).some((value) => value !== "");
  const change = (next: Partial<typeof NO_FILTERS>) => {
    setFilters(next);
    if (paging.cursor !== undefined) paging.first?.();
  };

  return (
    <Page title="Runs" lead="Every attempt of every epoch, newest first." cli={commandOf(filters)} wide>
      <FilterBar filters={filters} onChange={change} />
      {can("operator") && (
        <Group gap="xs" role="group" aria-label="Actions for the selected runs">
          <Button
            size="compact-sm"
            variant="default"
            leftSection={<Icon name="close" size={14} />}
            disabled={running.length === 0}
            loading={cancel.isPending}
            onClick={() => cancel.mutate(running)}
          >
            Cancel {formatCounted(running.length, "running", "running")}
          </Button>
          <Button
            size="compact-sm"
            variant="default"
            leftSection={<Icon name="refresh" size={14} />}
            disabled={failed.length === 0}
            loading={retry.isPending}
            onClick={() => retry.mutate(failed)}
          >
            Retry {formatCounted(failed.length, "failed", "failed")}
          </Button>
          <Text size="xs" c="dimmed">
            {chosen.size === 0
              ? "Select runs with their check boxes."
              : `${formatCounted(chosenRuns.length, "run")} selected on this page.`}
          </Text>
          {chosen.size > 0 && (
            <Button size="compact-sm" variant="subtle" onClick={() => setChosen("")}>
              Choose none
            </Button>
          )}
        </Group>
      )}
      {cancel.data !== undefined && (
        <BulkReport title="Cancel" done="asked to stop" items={cancel.data.items} onClose={cancel.reset} />
      )}
      {retry.data !== undefined && (
        <BulkReport title="Retry" done="tried again" items={retry.data.items} onClose={retry.reset} />
      )}
      {runs.isError && <ProblemMessage error={runs.error} retry={() => void runs.refetch()} />}
      {runs.isPending && <Loading rows={8} />}
      {runs.data !== undefined && (
        <DataTable
          label="Runs"
          columns={columnsOf(slowest)}
          rows={groupAttempts(items)}
          rowKey={(row) => row.run.id}
          onOpen={(row) => void navigate(`/runs/${row.run.id}`)}
          selection={
            can("operator")
              ? {
                  chosen,
                  onChange: (next) => setChosen([...next].join(",")),
                  label: (id) => `run ${id}`,
                }
              : undefined
          }
          minWidth={1060}
          empty={
            filtered ? (
              <EmptyState
                icon="filter"
                title="No run matches these filters"
                actions={
                  <Button variant="default" onClick={() => change(NO_FILTERS)}>
                    Clear the filters
                  </Button>
                }
              >
                Choose a longer period, another status, or fewer words.
              </EmptyState>
            ) : (
              <EmptyState icon="list" title="Nothing has run yet">
                A stage runs as soon as an increment arrives: put a file into the folder of a source,
                or upload one on the page of its sources.
              </EmptyState>
            )
          }
          paging={
            <Pager
              list="runs"
              shown={formatCounted(items.length, "run")}
              first={paging.first}
              back={paging.back}
              next={paging.next(runs.data.cursor)}
            />
          }
        />
      )}
    </Page>
  );
}

function columnsOf(slowest: number): readonly Column<Attempt>[] {
  return [
    {
      id: "run",
      header: "Run",
      render: ({ run, place }) => (
        <Group gap={6} wrap="nowrap">
          {place === "earlier" && (
            <Text span c="dimmed" aria-hidden>
              ↳
            </Text>
          )}
          <Anchor
            component={Link}
            to={`/runs/${run.id}`}
            ff="monospace"
            size="sm"
            title={`Run ${run.id}`}
            aria-label={`Run ${run.id}`}
          >
            {run.id.slice(-8)}
          </Anchor>
        </Group>
      ),
    },
    {
      id: "stage",
      header: "Stage",
      render: ({ run }) => (
        <Text size="sm" style={{ whiteSpace: "nowrap" }}>
          <Anchor component={Link} to={`/dataflows/${run.dataflow}`} size="sm">
            {run.dataflow}
          </Anchor>
          {" / "}
          <Anchor component={Link} to={`/dataflows/${run.dataflow}/stages/${run.stage}`} size="sm">
            {run.stages.join(" + ")}
          </Anchor>
        </Text>
      ),
    },
    { id: "epoch", header: "Epoch", align: "right", render: ({ run }) => run.epoch },
    {
      id: "attempt",
      header: "Attempt",
      align: "right",
      render: ({ run, place, of }) => (
        <Text span size="sm" style={{ whiteSpace: "nowrap" }}>
          {place === "earlier" ? `${run.attempt}, replaced` : of > 1 ? `${run.attempt}, newest` : run.attempt}
        </Text>
      ),
    },
    {
      id: "status",
      header: "Status",
      render: ({ run }) => <RunStatus status={run.status} error={run.error} />,
    },
    {
      id: "error",
      header: "Error",
      render: ({ run }) =>
        run.error === null ? (
          ""
        ) : (
          <Text span size="sm" title={String(run.error["message"] ?? "")} style={{ whiteSpace: "nowrap" }}>
            {String(run.error["error_code"] ?? "unexpected")}
          </Text>
        ),
    },
    { id: "started", header: "Started", render: ({ run }) => <RelativeTime at={run.started_at} /> },
    { id: "waited", header: "Waited", align: "right", render: ({ run }) => <Nowrap>{formatSeconds(run.waited_seconds)}</Nowrap> },
    {
      id: "took",
      header: "Took",
      align: "right",
      render: ({ run }) => <DurationBar run={run} slowest={slowest} />,
    },
    { id: "in", header: "In", align: "right", render: ({ run }) => figure(run, "records_in") },
    { id: "groups", header: "Groups", align: "right", render: ({ run }) => figure(run, "groups") },
    { id: "out", header: "Out", align: "right", render: ({ run }) => figure(run, "records_out") },
    { id: "lane", header: "Lane", render: ({ run }) => run.lanes.join(", ") || UNKNOWN },
  ];
}

function Nowrap({ children }: { children: string }) {
  return <span style={{ whiteSpace: "nowrap" }}>{children}</span>;
}

function figure(run: Run, name: string): string {
  return formatCompact(run.figures[name]);
}
