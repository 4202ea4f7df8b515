import { Alert, Anchor, Button, Code, Group, Text } from "@mantine/core";
import { Link, useParams } from "react-router";

import { client } from "@/api/client";
import { useAction, useApi } from "@/api/hooks";
import { useSession } from "@/api/session";
import type { components } from "@/api/schema";
import { CliHint } from "@/components/CliHint";
import { Icon } from "@/components/Icon";
import { formatCount, formatCounted } from "@/format/format";
import { Loading } from "@/components/Loading";
import { Page } from "@/components/Page";
import { Section } from "@/components/Section";
import { PriorityBadge } from "@/components/PriorityBadge";
import { ProblemMessage } from "@/components/ProblemMessage";
import { RelativeTime } from "@/components/RelativeTime";
import { AuthorError } from "@/components/runs/AuthorError";
import { StateBadge } from "@/components/StateBadge";
import { ToneBadge } from "@/components/ToneBadge";
import { InputTable } from "@/screens/stage/InputTable";
import { Lookups } from "@/screens/stage/Lookups";
import { PriorityControl } from "@/screens/stage/PriorityControl";
import { SetAside } from "@/screens/stage/SetAside";
import { StateSizes } from "@/screens/stage/StateSizes";
import { Trend } from "@/screens/stage/Trend";

type Detail = components["schemas"]["StageDetail"];

const RUNS = 60;

/** One stage: what it waits for, its queues, its state, its runs, its code, its error. */
export default function StageScreen() {
  const { dataflow = "", stage = "" } = useParams();
  const path = { name: dataflow, stage };
  const detail = useApi(["dataflows", dataflow, "stages", stage], () =>
    client.GET("/api/v1/dataflows/{name}/stages/{stage}", { params: { path } }),
  );
  const drifted = (detail.data?.code?.drift ?? "") !== "" || detail.data?.code === null;
  const states = useApi(
    ["dataflows", dataflow, "stages", stage, "states"],
    () => client.GET("/api/v1/dataflows/{name}/stages/{stage}/states", { params: { path } }),
    { enabled: detail.data !== undefined && !drifted },
  );
  const runs = useApi(
    ["runs", dataflow, stage, "trend"],
    () =>
      client.GET("/api/v1/runs", {
        params: { query: { dataflow, stage, status: "COMMITTED", limit: RUNS } },
      }),
    { enabled: detail.data !== undefined },
  );
  const cli = ["cbp", "stage", dataflow, stage];
  if (detail.data === undefined) {
    return (
      <Page title={stage} cli={cli}>
        {detail.isError ? <ProblemMessage error={detail.error} /> : <Loading rows={8} />}
      </Page>
    );
  }
  const shown = detail.data;
  return (
    <Page
      title={
        <Group gap="sm" component="span">
          {stage}
          <StateBadge state={shown.stage.state} />
          <PriorityBadge priority={shown.stage.priority} />
        </Group>
      }
      titleText={`${dataflow}.${stage}`}
      lead={<Lead detail={shown} dataflow={dataflow} />}
      actions={<StageActions dataflow={dataflow} detail={shown} />}
      cli={cli}
    >
      {detail.isError && <ProblemMessage error={detail.error} />}
      <WaitText detail={shown} dataflow={dataflow} />
      {shown.stage.rebuilding !== null && <RebuildText dataflow={dataflow} detail={shown} rebuild={shown.stage.rebuilding} />}
      {shown.error !== null && <AuthorError error={shown.error} dataflow={dataflow} run={shown.failed_run} />}
      {shown.set_aside !== null && <SetAside dataflow={dataflow} stage={stage} aside={shown.set_aside} />}
      <InputTable dataflow={dataflow} detail={shown} />
      <Lookups dataflow={dataflow} detail={shown} />
      <Section title="State">
        {drifted ? (
          <Text size="sm">
            {shown.code === null
              ? "The size of the state is shown once the translator can be loaded."
              : `The size of the state is shown only while the loaded code is that of version ${shown.code.version}.`}
          </Text>
        ) : states.isError ? (
          <ProblemMessage error={states.error} />
        ) : states.data === undefined ? (
          <Loading rows={2} />
        ) : (
          <StateSizes dataflow={dataflow} stage={stage} sizes={states.data.items} />
        )}
      </Section>
      <Section title="Run time by phase" lead={`The latest ${RUNS} committed runs; each bar is one epoch.`}>
        {runs.data === undefined ? <Loading rows={3} /> : <Trend runs={runs.data.items} stage={stage} />}
      </Section>
      <CodeFacts detail={shown} />
    </Page>
  );
}

/** How much of its input the stage has to read again, and where the tables before can be read. */
function RebuildText({ dataflow, detail, rebuild }: { dataflow: string; detail: Detail; rebuild: components["schemas"]["RebuildOut"] }) {
  const state = detail.stage.states[0]?.name;
  return (
    <Alert color="orange" icon={<Icon name="alert" />} title="This stage is being rebuilt" styles={{ message: { color: "var(--mantine-color-text)" } }}>
      The tables of this stage are not complete:{" "}
      {rebuild.left > 0
        ? `${formatCount(rebuild.left)} of ${formatCounted(rebuild.queued, "increment")} left to read again (${rebuild.percent} % done).`
        : `${rebuild.behind.join(", ")} must be rebuilt first.`}
      {rebuild.as_it_was !== null && state !== undefined && (
        <CliHint words={["cbp", "state", dataflow, `${detail.stage.name}.${state}`, "--at", rebuild.as_it_was]} />
      )}
    </Alert>
  );
}

function Lead({ detail, dataflow }: { detail: Detail; dataflow: string }) {
  const { stage } = detail;
  return (
    <Group gap="sm">
      <span>
        translator <Code>{stage.translator}</Code>
      </span>
      <span>next epoch {stage.epoch}</span>
      {stage.runs_with !== stage.name && (
        <span>
          runs with{" "}
          <Anchor component={Link} to={`/dataflows/${dataflow}/stages/${stage.runs_with}`} size="sm">
            {stage.runs_with}
          </Anchor>
        </span>
      )}
      <span>
        last success <RelativeTime at={stage.last_success_at} never="never" />
      </span>
      <Anchor
        component={Link}
        to={`/runs?dataflow=${dataflow}&stage=${stage.runs_with}`}
        size="sm"
      >
        all runs
      </Anchor>
    </Group>
  );
}

/** What a failed stage does next; the error itself is shown below. */
function failedWords(stage: Detail["stage"]): string {
  const tries = formatCounted(stage.failures, "time");
  const failed = stage.failures > 0 ? `Epoch ${stage.epoch} failed ${tries} in a row. ` : "";
  if (stage.paused_itself) return `${failed}The stage is paused, and starts again when you resume it. The error is shown below.`;
  if (stage.state === "stopped") return `${failed}The stage has stopped, and starts again when you retry it. The error is shown below.`;
  return `${failed}The stage is retried automatically. The error is shown below.`;
}

/** What it waits for, in the service's own words. */
function WaitText({ detail, dataflow }: { detail: Detail; dataflow: string }) {
  const { wait, stage, run } = detail;
  const words = detail.error === null ? stage.waiting || (run === null ? "The stage can start at the next tick." : "") : failedWords(stage);
  return (
    <Alert
      variant="light"
      color={stage.state === "stopped" ? "red" : stage.state === "retrying" ? "orange" : "gray"}
      icon={<Icon name="clock" />}
      title="Waiting for"
      role="region"
      aria-label="Waiting for"
      styles={{ message: { color: "var(--mantine-color-text)" }, title: { color: "var(--mantine-color-text)" } }}
    >
      <Text size="sm" style={{ overflowWrap: "anywhere" }}>
        {run !== null ? (
          <>
            Running now:{" "}
            <Anchor component={Link} to={`/runs/${run}`} size="sm">
              run {run}
            </Anchor>
            .{" "}
          </>
        ) : null}
        {words}
      </Text>
      <Group gap="md" mt={4}>
        {wait !== null && wait !== undefined && (
          <Text size="xs" c="dimmed" component="span">
            since <RelativeTime at={wait.since} />
          </Text>
        )}
        {stage.retry_at !== null && run === null && (
          <Text size="xs" component="span">
            next try <RelativeTime at={stage.retry_at} />
          </Text>
        )}
        {wait?.behind ? (
          <Anchor component={Link} to={`/dataflows/${dataflow}/stages/${wait.behind}`} size="xs">
            kept waiting by {wait.behind}
          </Anchor>
        ) : null}
      </Group>
    </Alert>
  );
}

function StageActions({ dataflow, detail }: { dataflow: string; detail: Detail }) {
  const { can } = useSession();
  const { stage } = detail;
  const path = { name: dataflow, stage: stage.runs_with };
  const pause = useAction(
    () => client.POST("/api/v1/dataflows/{name}/stages/{stage}/pause", { params: { path } }),
    { done: `${stage.runs_with} is paused` },
  );
  const resume = useAction(
    () => client.POST("/api/v1/dataflows/{name}/stages/{stage}/resume", { params: { path } }),
    { done: `${stage.runs_with} is resumed` },
  );
  const retry = useAction(
    () => client.POST("/api/v1/dataflows/{name}/stages/{stage}/retry", { params: { path } }),
    { done: `${stage.runs_with} is retried` },
  );
  if (!can("operator")) return null;
  return (
    <>
      {(stage.state === "stopped" || stage.state === "retrying") && (
        <Button leftSection={<Icon name="refresh" size={16} />} loading={retry.isPending} onClick={() => retry.mutate()}>
          Retry now
        </Button>
      )}
      {stage.paused_itself && (
        <Button leftSection={<Icon name="play" size={16} />} loading={resume.isPending} onClick={() => resume.mutate()}>
          Resume
        </Button>
      )}
      {stage.state !== "stopped" && stage.state !== "paused" && !stage.paused_itself && (
        <Button
          variant="default"
          leftSection={<Icon name="pause" size={16} />}
          loading={pause.isPending}
          onClick={() => pause.mutate()}
        >
          Pause
        </Button>
      )}
      <PriorityControl dataflow={dataflow} stage={stage.runs_with} priority={stage.priority} />
      {stage.state === "paused" && !stage.paused_itself && (
        <Text size="sm" c="dimmed">
          The dataflow is paused: resume it on the page of the dataflow.
        </Text>
      )}
    </>
  );
}

function CodeFacts({ detail }: { detail: Detail }) {
  const { code, stage } = detail;
  if (code === null) {
    return (
      <Section title="Code">
        <Text size="sm">The translator of this stage cannot be loaded; the page of the dataflow shows why.</Text>
      </Section>
    );
  }
  return (
    <Section title="Code">
      <Group gap="md">
        <Text size="sm">version {code.version}</Text>
        <Text size="sm" component="span">
          fingerprint <Code>{code.registered || "not known"}</Code>
        </Text>
        {code.place !== "" && (
          <Text size="sm" component="span" style={{ overflowWrap: "anywhere" }}>
            <Code>{code.place}</Code>
          </Text>
        )}
        <Text size="sm">started by rule {stage.runnable || "RunAll"}</Text>
        {code.drift === "" ? (
          <ToneBadge tone="good">the loaded code is the registered code</ToneBadge>
        ) : (
          <ToneBadge tone="bad">the loaded code differs from the registered code</ToneBadge>
        )}
      </Group>
      {code.drift !== "" && (
        <Text size="sm" style={{ overflowWrap: "anywhere" }}>
          {code.drift} (loaded: <Code>{code.loaded}</Code>). Register the document again to use the loaded code.
        </Text>
      )}
    </Section>
  );
}
