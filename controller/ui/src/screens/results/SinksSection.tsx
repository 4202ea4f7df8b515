import { Button, Group, Text } from "@mantine/core";

import { client } from "@/api/client";
import { useAction, useApi } from "@/api/hooks";
import type { components } from "@/api/schema";
import { useSession } from "@/api/session";
import { CliHint } from "@/components/CliHint";
import { DataTable, type Column } from "@/components/DataTable";
import { RelativeTime } from "@/components/RelativeTime";
import { Section } from "@/components/Section";
import { StateBadge } from "@/components/StateBadge";
import { formatCount, formatCounted } from "@/format/format";

type Sink = components["schemas"]["SinkOut"];
type Choice = "rewrite" | "keep";

const WORDS: Record<string, { state: string; word: string }> = {
  current: { state: "ok", word: "Up to date" },
  behind: { state: "running", word: "Behind" },
};
const CHOICES: Record<string, string> = { rewrite: "Rewrite", keep: "Keep and continue" };

/** Where the dataflow is published outside, how far each sink is, and what is wrong; nothing without sinks. */
export function SinksSection({ dataflow }: { dataflow: string }) {
  const session = useSession();
  const sinks = useApi(["sinks", dataflow], () =>
    client.GET("/api/v1/dataflows/{name}/sinks", { params: { path: { name: dataflow }, query: { limit: 100 } } }),
  );
  const path = (sink: string) => ({ name: dataflow, sink });
  const pause = useAction((sink: string) => client.POST("/api/v1/dataflows/{name}/sinks/{sink}/pause", { params: { path: path(sink) } }), {
    done: "The sink is paused.",
  });
  const retry = useAction((sink: string) => client.POST("/api/v1/dataflows/{name}/sinks/{sink}/retry", { params: { path: path(sink) } }), {
    done: "The sink is retried.",
  });
  const resume = useAction(
    ({ sink, undone }: { sink: string; undone?: Choice }) =>
      client.POST("/api/v1/dataflows/{name}/sinks/{sink}/resume", {
        params: { path: path(sink), query: undone === undefined ? {} : { undone } },
      }),
    { done: "The sink is resumed." },
  );
  const items = sinks.data?.items ?? [];
  if (items.length === 0) return null;
  const columns: Column<Sink>[] = [
    { id: "name", header: "Sink", render: (one) => one.name, sort: (one) => one.name },
    { id: "to", header: "Publishes", render: (one) => `${one.flow} to ${one.to} ${one.target}` },
    {
      id: "state",
      header: "State",
      render: (one) => (
        <>
          <StateBadge state={WORDS[one.state]?.state ?? one.state} word={WORDS[one.state]?.word} />
          {one.error !== null && one.error !== undefined && (
            <Text size="xs" mt={4} style={{ overflowWrap: "anywhere" }}>
              {String(one.error["error_code"] ?? "")}: {String(one.error["message"] ?? "")}
            </Text>
          )}
        </>
      ),
      sort: (one) => one.state,
    },
    {
      id: "published",
      header: "Published",
      render: (one) => (
        <>
          {formatCounted(one.increments, "increment")}, {formatCounted(one.records, "record")};{" "}
          <RelativeTime at={one.published_at} never="not yet" />
        </>
      ),
    },
    { id: "waiting", header: "Waiting", align: "right", render: (one) => formatCount(one.waiting), sort: (one) => one.waiting },
  ];
  if (session.can("operator"))
    columns.push({
      id: "actions",
      header: "Actions",
      render: (one) => (
        <Group gap={6}>
          {one.state === "paused" ? (
            <Button size="compact-xs" variant="default" aria-label={`Resume ${one.name}`} onClick={() => resume.mutate({ sink: one.name })}>
              Resume
            </Button>
          ) : (
            <Button size="compact-xs" variant="default" aria-label={`Pause ${one.name}`} onClick={() => pause.mutate(one.name)}>
              Pause
            </Button>
          )}
          {one.failures > 0 && (
            <Button size="compact-xs" variant="default" aria-label={`Try ${one.name} again`} onClick={() => retry.mutate(one.name)}>
              Try again
            </Button>
          )}
          {one.choices.map((choice) => (
            <Button
              key={choice}
              size="compact-xs"
              variant="default"
              aria-label={`${CHOICES[choice] ?? choice}: ${one.name}`}
              onClick={() => resume.mutate({ sink: one.name, undone: choice as Choice })}
            >
              {CHOICES[choice] ?? choice}
            </Button>
          ))}
        </Group>
      ),
    });
  return (
    <Section title="Sinks" lead="Destinations outside the service to which results are published. A failing sink stops no stage.">
      <DataTable label="Table of sinks" columns={columns} rows={items} rowKey={(one) => one.name} sortName="sinks" />
      <CliHint words={["cbp", "sinks", "list", dataflow]} />
    </Section>
  );
}
