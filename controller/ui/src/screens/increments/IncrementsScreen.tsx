import { Anchor, Button, Group, Select, Switch, Text, Tooltip } from "@mantine/core";
import { Link, useParams } from "react-router";

import { client } from "@/api/client";
import { useAction, useApi } from "@/api/hooks";
import type { components } from "@/api/schema";
import { useSession } from "@/api/session";
import { DataTable, Pager, type Column } from "@/components/DataTable";
import { EmptyState } from "@/components/EmptyState";
import { Icon, type IconName } from "@/components/Icon";
import { Loading } from "@/components/Loading";
import { Page } from "@/components/Page";
import { ProblemMessage } from "@/components/ProblemMessage";
import { RelativeTime } from "@/components/RelativeTime";
import { formatBytes, formatCount, formatCounted } from "@/format/format";
import { usePaging } from "@/hooks/paging";
import { useUrlStates } from "@/hooks/urlState";
import { RESUMES, RETRIES, useDataflowActions } from "@/screens/dataflows/actions";

type Row = components["schemas"]["GridRowOut"];
type Cell = components["schemas"]["GridCellOut"];
type Stage = components["schemas"]["GridStageOut"];

const LOOKS: Record<Cell["status"], { word: string; icon: IconName; color: string }> = {
  none: { word: "Not read", icon: "minus", color: "dimmed" },
  unknown: { word: "Not known", icon: "help", color: "dimmed" },
  applied: { word: "Applied", icon: "check", color: "teal" },
  upstream: { word: "Upstream", icon: "back", color: "dimmed" },
  waiting: { word: "Waiting", icon: "clock", color: "orange" },
  running: { word: "Running", icon: "refresh", color: "signal" },
  failed: { word: "Failed", icon: "alert", color: "red" },
};

const MEANINGS: Record<Cell["status"], string> = {
  none: "This stage does not read the flow",
  unknown: "The runs that applied the increment are no longer known",
  applied: "Applied",
  upstream: "An upstream stage has not applied the increment yet",
  waiting: "The increment is in the queue of this stage",
  running: "A run is reading the increment now",
  failed: "The last run that read the increment failed",
};

/** Increments of a flow by stage: what is applied, by which run, and where the rest waits. */
export default function IncrementsScreen() {
  const { dataflow = "" } = useParams();
  const session = useSession();
  const [view, setView] = useUrlStates({ flow: "", open: "" });
  const paging = usePaging();
  const query = {
    limit: 50,
    ...(view.flow === "" ? {} : { flow: view.flow }),
    ...(view.open === "" ? {} : { not_applied: true }),
    ...(paging.cursor === undefined ? {} : { cursor: paging.cursor }),
  };
  const grid = useApi(
    ["increments", dataflow, "grid", query],
    () => client.GET("/api/v1/dataflows/{name}/increments/grid", { params: { path: { name: dataflow }, query } }),
    { keepPrevious: true },
  );
  const failing = grid.data?.stages.filter((stage) => stage.failures > 0) ?? [];
  // One that an operator has paused is not tried, whatever its failures: it is to be resumed.
  const retried = failing.filter((stage) => !stage.paused_itself);
  const filter = view.open === "" ? [] : ["--not-applied"];
  return (
    <Page
      title="Increments"
      titleText={`Increments of ${dataflow}`}
      lead="Shows which stages have applied each increment, or the output that was made from it."
      wide
      cli={["cbp", "increments", dataflow, "--grid", ...(view.flow === "" ? [] : ["--flow", view.flow]), ...filter]}
      actions={retried.length > 0 && session.can("operator") && <RetryFailed dataflow={dataflow} stages={retried} />}
    >
      <Group gap="md" align="flex-end">
        <Select
          label="Flow"
          data={grid.data?.flows ?? []}
          value={grid.data?.flow ?? null}
          allowDeselect={false}
          onChange={(flow) => setView({ flow: flow ?? "" })}
          searchable
        />
        <Switch
          label="Only increments that are not applied"
          checked={view.open !== ""}
          onChange={(event) => setView({ open: event.currentTarget.checked ? "1" : "" })}
          pb={8}
        />
      </Group>
      {grid.isError && <ProblemMessage error={grid.error} />}
      {grid.isPending && <Loading />}
      {failing.map((stage) => (
        <StageTrouble key={stage.name} dataflow={dataflow} stage={stage} />
      ))}
      {grid.data !== undefined && (
        <DataTable
          label="Increments by stage"
          columns={columnsOf(dataflow, grid.data.flow ?? "", grid.data.stages)}
          rows={grid.data.items}
          rowKey={(row) => String(row.index)}
          minWidth={420 + 130 * grid.data.stages.length}
          empty={<Nothing dataflow={dataflow} onlyOpen={view.open !== ""} />}
          paging={
            <Pager
              list="increments"
              shown={formatCounted(grid.data.items.length, "increment")}
              first={paging.first}
              back={paging.back}
              next={paging.next(grid.data.cursor)}
            />
          }
        />
      )}
    </Page>
  );
}

function columnsOf(dataflow: string, flow: string, stages: readonly Stage[]): Column<Row>[] {
  return [
    {
      id: "index",
      header: "Increment",
      align: "right",
      render: (row) => (
        <Anchor component={Link} to={`/dataflows/${dataflow}/increments/${flow}/${row.index}`} size="sm" title="Its records">
          {formatCount(row.index)}
        </Anchor>
      ),
    },
    {
      id: "file",
      header: "File",
      render: (row) => (
        <Text size="sm" lineClamp={1} title={row.file} style={{ overflowWrap: "anywhere" }}>
          {row.file}
        </Text>
      ),
    },
    { id: "arrived", header: "Arrived", render: (row) => <RelativeTime at={row.created_at} /> },
    { id: "records", header: "Records", align: "right", render: (row) => formatCount(row.records) },
    { id: "bytes", header: "Size", align: "right", render: (row) => formatBytes(row.bytes) },
    ...stages.map(
      (stage, number): Column<Row> => ({
        id: `stage:${stage.name}`,
        header: stage.stages.length > 1 ? stage.stages.join(" + ") : stage.name,
        render: (row) => <GridCell dataflow={dataflow} stage={stage.name} cell={row.cells[number]} />,
      }),
    ),
  ];
}

function GridCell({ dataflow, stage, cell }: { dataflow: string; stage: string; cell: Cell | undefined }) {
  if (cell === undefined) return null;
  const { word, icon, color } = LOOKS[cell.status];
  const shown = (
    <Group gap={4} wrap="nowrap" title={MEANINGS[cell.status]} data-status={cell.status}>
      <Text span c={color} inherit style={{ display: "inline-flex" }}>
        <Icon name={icon} size={14} />
      </Text>
      <Text span size="sm" {...(color === "dimmed" ? { c: "dimmed" } : {})}>
        {cell.epoch === null ? word : `${word} in ${formatCount(cell.epoch)}`}
      </Text>
    </Group>
  );
  // What was not applied is explained where its stage is: why it waits, or why it failed.
  const to =
    cell.run === null
      ? `/dataflows/${dataflow}/stages/${stage}`
      : `/runs/${cell.run}?dataflow=${encodeURIComponent(dataflow)}`;
  return (
    <Anchor component={Link} to={to} underline="hover">
      {shown}
    </Anchor>
  );
}

function StageTrouble({ dataflow, stage }: { dataflow: string; stage: Stage }) {
  const { can } = useSession();
  const { resumeStage } = useDataflowActions();
  return (
    <Group gap={6} wrap="nowrap" align="flex-start">
      <Text span c="red" style={{ display: "inline-flex", flexShrink: 0 }}>
        <Icon name="alert" size={16} />
      </Text>
      <Text size="sm" style={{ overflowWrap: "anywhere" }}>
        <Anchor component={Link} to={`/dataflows/${dataflow}/stages/${stage.name}`} size="sm" fw={600}>
          {stage.name}
        </Anchor>
        : {formatCounted(stage.failures, "failed try", "failed tries")};{" "}
        {stage.stopped === "" ? (
          <>
            next try <RelativeTime at={stage.retry_at} never="soon" />
          </>
        ) : (
          stage.stopped
        )}
        {stage.paused_itself && ", and is not retried until you resume it"}
      </Text>
      {stage.paused_itself && can("operator") && (
        <Tooltip label={RESUMES}>
          <Button
            size="compact-xs"
            variant="default"
            loading={resumeStage.isPending}
            onClick={() => resumeStage.mutate({ dataflow, stage: stage.name })}
            aria-label={`Resume ${stage.name}`}
          >
            Resume
          </Button>
        </Tooltip>
      )}
    </Group>
  );
}

function RetryFailed({ dataflow, stages }: { dataflow: string; stages: readonly Stage[] }) {
  const retry = useAction(
    async () => {
      const path = (stage: Stage) => ({ path: { name: dataflow, stage: stage.name } });
      const answers = await Promise.all(
        stages.map((stage) =>
          client.POST("/api/v1/dataflows/{name}/stages/{stage}/retry", { params: path(stage) }),
        ),
      );
      return answers.find((answer) => !answer.response.ok) ?? answers[0]!;
    },
    { done: `${formatCounted(stages.length, "stage is", "stages are")} retried` },
  );
  return (
    <Tooltip label={`${stages.map(({ name }) => name).join(", ")}: ${RETRIES}`} multiline maw={360}>
      <Button leftSection={<Icon name="refresh" size={16} />} loading={retry.isPending} onClick={() => retry.mutate()}>
        Retry failed
      </Button>
    </Tooltip>
  );
}

function Nothing({ dataflow, onlyOpen }: { dataflow: string; onlyOpen: boolean }) {
  if (onlyOpen) return <EmptyState icon="check" title="Everything is applied" />;
  return (
    <EmptyState
      title="Nothing has arrived yet"
      actions={
        <Button component={Link} to={`/dataflows/${dataflow}/sources`} variant="default">
          Upload a file
        </Button>
      }
    >
      Each file that a source takes in becomes an increment, and a row of this table.
    </EmptyState>
  );
}
