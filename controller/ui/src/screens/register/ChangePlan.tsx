import { List, NativeSelect, Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import type { components } from "@/api/schema";
import { DataTable, type Column } from "@/components/DataTable";
import { Notice } from "@/components/Notice";
import { Section } from "@/components/Section";
import { becomes, decisions, losses, queuedInWords, skippedInWords, viewsInWords } from "@/screens/register/planning";
import type { Change, Choice, Fate } from "@/screens/register/useDocument";

type Node = components["schemas"]["NodeOut"];
type Row = Node & { role: "source" | "stage" };

interface ChangePlanProps {
  plan: Change;
  choice: Choice;
  onChoose: (choice: Choice) => void;
}

/** What a new version keeps, makes again and loses, before one confirms. */
export function ChangePlan({ plan, choice, onChoose }: ChangePlanProps) {
  const use = useApi(
    ["disk", plan.name],
    () => client.GET("/api/v1/dataflows/{name}/disk", { params: { path: { name: plan.name } } }),
    { follow: false },
  );
  const lost = losses(plan, use.data?.items ?? []);
  const again = plan.queues.map(queuedInWords).filter((words) => words !== "");
  const skipped = plan.queues.map(skippedInWords).filter((words) => words !== "");
  const rows: Row[] = [
    ...plan.sources.map((node) => ({ ...node, role: "source" as const })),
    ...plan.stages.map((node) => ({ ...node, role: "stage" as const })),
  ];
  const columns: readonly Column<Row>[] = [
    {
      id: "name",
      header: "Name",
      render: (row) => (
        <>
          <Text size="sm">{row.name}</Text>
          <Text size="xs" c="dimmed">
            {row.role}
          </Text>
        </>
      ),
    },
    {
      id: "becomes",
      header: "Becomes",
      render: (row) => (
        <>
          <Text size="sm" fw={600}>
            {becomes(row)}
          </Text>
          <Differs node={row} />
        </>
      ),
    },
    {
      id: "decide",
      header: "Your decision",
      render: (row) =>
        row.role === "stage" && decisions(row).length > 0 ? (
          <NativeSelect
            size="xs"
            aria-label={`Decision about ${row.name}`}
            value={choice[row.name] ?? ""}
            onChange={(event) => onChoose(decide(choice, row.name, event.currentTarget.value))}
            data={decisions(row)}
          />
        ) : null,
    },
  ];
  if (!plan.changed && plan.refused.length === 0) {
    return (
      <Section title="Change plan">
        <Text size="sm">
          This is version {plan.version}, as it is registered. Nothing would change.
        </Text>
      </Section>
    );
  }
  return (
    <Section
      title="Change plan"
      lead={`Changes to ${plan.name} if you apply this as version ${plan.version}.`}
    >
      <Stack gap="sm">
        {lost.length > 0 ? (
          <Sentences title="What is lost" lines={lost} />
        ) : (
          <Notice tone="good" title="Nothing is lost">
            Every state and every queued increment is kept.
          </Notice>
        )}
        <Sentences tone="busy" title="What is read again" lines={again} />
        <Sentences title="What readers see meanwhile" lines={plan.meanwhile} />
        <Sentences title="What is not read" lines={skipped} />
        <DataTable
          label="Changes of sources and stages"
          columns={columns}
          rows={rows}
          rowKey={(row) => `${row.role}/${row.name}`}
          sortName="plan-sort"
          minWidth={420}
        />
      </Stack>
    </Section>
  );
}

interface SentencesProps {
  title: string;
  lines: readonly string[];
  tone?: "warn" | "busy";
  children?: ReactNode;
}

/** A notice of some sentences, and what belongs to them; nothing if there are none. */
export function Sentences({ title, lines, tone = "warn", children }: SentencesProps) {
  if (lines.length === 0) return null;
  return (
    <Notice tone={tone} title={title}>
      <List size="sm">
        {lines.map((line) => (
          <List.Item key={line}>{line}</List.Item>
        ))}
      </List>
      {children}
    </Notice>
  );
}

function Differs({ node }: { node: Node }) {
  const lines = [
    ...node.differences,
    ...(node.buckets === null ? [] : [`${node.buckets[0]} to ${node.buckets[1]} buckets`]),
    ...Object.entries(node.columns).map(([flow, changes]) => `${flow}: ${changes.join("; ")}`),
    ...(node.kind === "added" ? [] : node.rewired.map((input) => `input ${input} reads another flow`)),
    ...node.settings,
    ...viewsInWords(node),
  ];
  if (lines.length === 0) return null;
  return (
    <Text size="xs" c="dimmed">
      {lines.join("; ")}
    </Text>
  );
}

/** Return a choice with one decision more, or without it. Pure. */
function decide(choice: Choice, stage: string, fate: string): Choice {
  const { [stage]: _, ...others } = choice;
  return fate === "" ? others : { ...others, [stage]: fate as Fate };
}
