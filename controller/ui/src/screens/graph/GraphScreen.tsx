import { Anchor, Button, Group, Menu, SegmentedControl, Stack, Text, Tooltip } from "@mantine/core";
import { useMemo } from "react";
import { Link, useParams } from "react-router";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import { useSession } from "@/api/session";
import { Icon } from "@/components/Icon";
import { Loading } from "@/components/Loading";
import { StatusBox } from "@/components/StatusBox";
import { Page } from "@/components/Page";
import { ProblemMessage } from "@/components/ProblemMessage";
import { formatCounted, formatSeconds } from "@/format/format";
import { useUrlStates } from "@/hooks/urlState";
import { PAUSES, RESUMES, useDataflowActions } from "@/screens/dataflows/actions";
import { FreshnessBadge } from "@/screens/dataflows/FreshnessBadge";
import { TroubleBox } from "@/screens/dataflows/Headline";
import { GraphCanvas } from "@/screens/graph/GraphCanvas";
import { GraphTable } from "@/screens/graph/GraphTable";
import { collapse, countStates, graphOf, groupsOf, lateStages, lookupsOf, neighbourhood, wordsOf, type Detail } from "@/screens/graph/model";
import { StagePanel } from "@/screens/graph/StagePanel";

const LATE_SHOWN = 5;
const NO_CHOICE = { view: "graph", node: "", steps: "", folded: "" };

/** One dataflow as a graph: which stages run, wait, are paused or failed, and what is between. */
export default function GraphScreen() {
  const { dataflow = "" } = useParams();
  const detail = useApi(["dataflows", dataflow], () =>
    client.GET("/api/v1/dataflows/{name}", { params: { path: { name: dataflow } } }),
  );
  return (
    <Page
      title={dataflow}
      wide
      cli={["cbp", "status", dataflow]}
      lead={detail.data === undefined ? undefined : <Summary detail={detail.data} />}
      actions={detail.data === undefined ? undefined : <Steering detail={detail.data} />}
    >
      {detail.isError && <ProblemMessage error={detail.error} retry={() => void detail.refetch()} />}
      {detail.isPending && <Loading rows={8} />}
      {detail.data !== undefined && <Content detail={detail.data} dataflow={dataflow} />}
    </Page>
  );
}

function Content({ detail, dataflow }: { detail: Detail; dataflow: string }) {
  const [choice, setChoice] = useUrlStates(NO_CHOICE);
  const whole = useMemo(() => graphOf(detail), [detail]);
  const groups = useMemo(() => groupsOf(detail.stages), [detail.stages]);
  const folded = choice.folded === "" ? [] : choice.folded.split(",");
  const foldedGroups = new Map([...groups].filter(([title]) => folded.includes(title) || choice.folded === "all"));
  const collapsed = collapse(whole, foldedGroups);
  const chosen = collapsed.nodes.find(({ id }) => id === choice.node);
  const graph =
    chosen === undefined || choice.steps === ""
      ? collapsed
      : neighbourhood(collapsed, chosen.id, Number(choice.steps));
  return (
    <Stack gap="sm">
      {detail.definition_problem !== null && (
        <StatusBox tone="bad" title="Its translators cannot be loaded" label="Definition">
          <Text size="sm">{detail.definition_problem}</Text>
        </StatusBox>
      )}
      <TroubleBox dataflow={detail.summary} stages={detail.stages} />
      <LateBox detail={detail} />
      <Group justify="space-between">
        <SegmentedControl
          aria-label="Form"
          size="xs"
          data={[
            { value: "graph", label: "Graph" },
            { value: "table", label: "Table" },
          ]}
          value={choice.view}
          onChange={(view) => setChoice({ view })}
        />
        {groups.size > 0 && choice.view === "graph" && (
          <Groups
            titles={[...groups.keys()]}
            folded={[...foldedGroups.keys()]}
            onFold={(titles) =>
              setChoice({ folded: titles.length === groups.size ? "all" : titles.join(","), node: "", steps: "" })
            }
          />
        )}
      </Group>
      {choice.view === "table" ? (
        <GraphTable graph={whole} dataflow={dataflow} />
      ) : (
        <>
          <GraphCanvas
            graph={graph}
            dataflow={dataflow}
            chosen={choice.node}
            onChoose={(node) => setChoice(node === "" ? { node, steps: "" } : { node })}
          />
          {chosen === undefined ? (
            <Text size="sm" c="dimmed">
              Choose a box to see what it waits for; the name in it is a link to the stage. Dashed edges are
              loops; stages in a dashed frame run together.
              {lookupsOf(graph).length > 0 &&
                " Dotted edges with “looks up” are look-ups: a table is read by key, and no run waits for it."}
            </Text>
          ) : (
            <StagePanel
              node={chosen}
              dataflow={dataflow}
              steps={choice.steps}
              onSteps={(steps) => setChoice({ steps })}
              onExpand={() =>
                setChoice({
                  folded: [...foldedGroups.keys()].filter((title) => title !== chosen.name).join(","),
                  node: "",
                  steps: "",
                })
              }
            />
          )}
        </>
      )}
    </Stack>
  );
}

/** Which stages are late, and what each waits for or does; nothing while all keep up. */
function LateBox({ detail }: { detail: Detail }) {
  const late = lateStages(detail.stages);
  if (detail.summary.state !== "ok" || late.length === 0) return null;
  return (
    <StatusBox tone="busy" title={`Late by ${formatSeconds(detail.summary.lag_seconds)}`} label="Late">
      <Stack gap={2} mt="xs">
        {late.slice(0, LATE_SHOWN).map((stage) => (
          <Text key={stage.name} size="sm" style={{ overflowWrap: "anywhere" }}>
            <Anchor component={Link} to={`/dataflows/${detail.summary.name}/stages/${stage.name}`} size="sm" fw={600}>
              {stage.name}
            </Anchor>
            , by {formatSeconds(stage.lag_seconds)}: {stage.waiting || wordsOf(stage)}.
          </Text>
        ))}
        {late.length > LATE_SHOWN && <Text size="sm">And {formatCounted(late.length - LATE_SHOWN, "more stage")}: see the table.</Text>}
      </Stack>
    </StatusBox>
  );
}

function Groups({
  titles,
  folded,
  onFold,
}: {
  titles: readonly string[];
  folded: readonly string[];
  onFold: (titles: readonly string[]) => void;
}) {
  return (
    <Group gap="xs">
      <Button size="xs" variant="default" disabled={folded.length === titles.length} onClick={() => onFold(titles)}>
        Fold all groups
      </Button>
      <Button size="xs" variant="default" disabled={folded.length === 0} onClick={() => onFold([])}>
        Unfold all
      </Button>
      <Menu closeOnItemClick={false} position="bottom-end">
        <Menu.Target>
          <Button size="xs" variant="default" rightSection={<Icon name="down" size={12} />}>
            Groups
          </Button>
        </Menu.Target>
        <Menu.Dropdown mah={360} style={{ overflowY: "auto" }}>
          {titles.map((title) => {
            const isFolded = folded.includes(title);
            return (
              <Menu.Item
                key={title}
                leftSection={<Icon name={isFolded ? "plus" : "minus"} size={14} />}
                onClick={() =>
                  onFold(isFolded ? folded.filter((one) => one !== title) : [...folded, title])
                }
              >
                {isFolded ? "Unfold" : "Fold"} {title}
              </Menu.Item>
            );
          })}
        </Menu.Dropdown>
      </Menu>
    </Group>
  );
}

const WORDS: readonly [string, string][] = [
  ["running", "running"],
  ["waiting", "waiting"],
  ["retrying", "failed and retrying"],
  ["stopped", "stopped"],
  ["set_aside", "with records set aside"],
  ["paused", "paused"],
];

function Summary({ detail }: { detail: Detail }) {
  const counts = countStates(detail.stages);
  const { summary } = detail;
  const query = { dataflow: summary.name };
  const freshness = useApi(["dataflows", summary.name, "freshness"], () =>
    client.GET("/api/v1/freshness", { params: { query } }),
  );
  const words = WORDS.filter(([state]) => counts.has(state)).map(([state, word]) => `${counts.get(state)} ${word}`);
  const lag = summary.lag_seconds === null ? "no lag" : `lag ${formatSeconds(summary.lag_seconds)}`;
  return (
    <Group gap="xs">
      <FreshnessBadge state={summary.state} fresh={freshness.data?.dataflows[0]} />
      <span>
        {formatCounted(detail.stages.length, "stage")}: {words.join(", ")}; {lag};{" "}
        {formatCounted(summary.queued_increments, "increment")} queued;{" "}
        <Anchor component={Link} to={`/dataflows/${summary.name}/versions`} size="sm" underline="always">
          version {summary.version}
        </Anchor>
      </span>
    </Group>
  );
}

function Steering({ detail }: { detail: Detail }) {
  const { can } = useSession();
  const { pause, resume } = useDataflowActions();
  const { name, desired } = detail.summary;
  if (!can("operator")) return null;
  const paused = desired !== "running";
  return (
    <Tooltip label={paused ? RESUMES : PAUSES}>
      <Button
        variant={paused ? "filled" : "default"}
        leftSection={<Icon name={paused ? "play" : "pause"} size={16} />}
        loading={pause.isPending || resume.isPending}
        onClick={() => (paused ? resume : pause).mutate(name)}
      >
        {paused ? "Resume" : "Pause"}
      </Button>
    </Tooltip>
  );
}
