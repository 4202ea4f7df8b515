import { Anchor, Code, Group, NativeSelect, Stack, Text, TextInput } from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import { Link } from "react-router";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import type { components } from "@/api/schema";
import { Asked } from "@/components/Asked";
import { DataTable, Pager, type Column } from "@/components/DataTable";
import { EmptyState } from "@/components/EmptyState";
import { Page } from "@/components/Page";
import { RelativeTime } from "@/components/RelativeTime";
import { StateBadge } from "@/components/StateBadge";
import type { Words } from "@/format/shell";
import { usePaging } from "@/hooks/paging";
import { useUrlStates } from "@/hooks/urlState";
import { useNow } from "@/hooks/useNow";
import { linkOf, outcomeOf, OUTCOMES, PERIODS, sinceOf, subjectOf } from "@/screens/audit/filters";

type Entry = components["schemas"]["AuditOut"];

const BADGES = {
  done: { state: "ok", word: "Done" },
  failed: { state: "retrying", word: "Failed" },
  refused: { state: "stopped", word: "Refused" },
} as const;

const COLUMNS: readonly Column<Entry>[] = [
  { id: "at", header: "When", render: (row) => <RelativeTime at={row.at} /> },
  { id: "actor", header: "Who", render: (row) => <Who entry={row} /> },
  { id: "action", header: "Action", render: (row) => (row.action === "" ? "-" : <Code>{row.action}</Code>) },
  { id: "subject", header: "About", render: (row) => <Subject entry={row} /> },
  { id: "outcome", header: "Outcome", render: (row) => <Result entry={row} /> },
  {
    id: "reason",
    header: "Reason",
    render: (row) => (
      <Text size="sm" style={{ overflowWrap: "anywhere" }}>
        {row.reason}
      </Text>
    ),
  },
];

/** Who changed what, when, why, and with which outcome. */
export default function AuditScreen() {
  const [filters, setFilters] = useUrlStates({ actor: "", action: "", dataflow: "", outcome: "", period: "", cursor: "" });
  const paging = usePaging();
  const since = sinceOf(filters.period, useNow());
  const query = {
    actor: filters.actor || null,
    action: filters.action || null,
    dataflow: filters.dataflow || null,
    outcome: outcomeOf(filters.outcome),
    since,
    cursor: paging.cursor ?? null,
    limit: 50,
  };
  const audit = useApi(["audit", query], () => client.GET("/api/v1/audit", { params: { query } }), {
    keepPrevious: true,
  });
  const isFiltered = [filters.actor, filters.action, filters.dataflow, filters.outcome, filters.period].some(Boolean);
  return (
    <Page
      title="Audit"
      wide
      lead="Every request that changed something, and the number of refused requests. User names come from clients and are not verified."
      cli={commandOf(filters)}
    >
      <Group align="flex-end" gap="sm" component="section" aria-label="Filters">
        <Filter label="Who" placeholder="token:ci" value={filters.actor} onChange={(actor) => setFilters({ actor, cursor: "" })} />
        <Filter label="Action" placeholder="dataflows_pause" value={filters.action} onChange={(action) => setFilters({ action, cursor: "" })} />
        <Filter label="Dataflow" placeholder="clicks" value={filters.dataflow} onChange={(dataflow) => setFilters({ dataflow, cursor: "" })} />
        <NativeSelect
          label="Outcome"
          data={[{ value: "", label: "any" }, ...OUTCOMES]}
          value={filters.outcome}
          onChange={(event) => setFilters({ outcome: event.currentTarget.value, cursor: "" })}
        />
        <NativeSelect
          label="When"
          data={PERIODS.map(({ value, label }) => ({ value, label }))}
          value={filters.period}
          onChange={(event) => setFilters({ period: event.currentTarget.value, cursor: "" })}
        />
      </Group>
      <Asked query={audit}>
        {(page) => (
          <DataTable
            label="Audit log"
            columns={COLUMNS}
            rows={page.items}
            rowKey={(row) => String(row.number)}
            minWidth={880}
            empty={
              <EmptyState icon="list" title={isFiltered ? "No entry matches these filters" : "Nothing was changed yet"}>
                {isFiltered
                  ? "Remove a filter. Names must match exactly."
                  : "The first pause, upload or registration is listed here."}
              </EmptyState>
            }
            paging={
              <Pager
                list="audit log"
                shown={`${page.items.length} entries`}
                first={paging.first}
                back={paging.back}
                next={paging.next(page.cursor)}
              />
            }
          />
        )}
      </Asked>
    </Page>
  );
}

/** A text of the address; the service is asked when one has stopped typing. */
function Filter({
  label,
  placeholder,
  value,
  onChange,
}: {
  label: string;
  placeholder: string;
  value: string;
  onChange: (value: string) => void;
}) {
  const change = useDebouncedCallback(onChange, 300);
  return (
    <TextInput
      key={value}
      label={label}
      placeholder={placeholder}
      defaultValue={value}
      w={170}
      onChange={(event) => change(event.currentTarget.value.trim())}
    />
  );
}

function Who({ entry }: { entry: Entry }) {
  const further = [entry.user, entry.session === null ? "" : `on the page (${entry.session})`].filter(Boolean);
  return (
    <Stack gap={0}>
      <Text size="sm">{entry.actor === "" ? "not recognised" : entry.actor}</Text>
      <Text size="xs" c="dimmed" style={{ overflowWrap: "anywhere" }}>
        {[...further, entry.address].filter(Boolean).join(", ")}
      </Text>
    </Stack>
  );
}

function Subject({ entry }: { entry: Entry }) {
  const link = linkOf(entry);
  const text = subjectOf(entry);
  if (text === "") return "-";
  if (link === null) return <Text size="sm">{text}</Text>;
  return (
    <Anchor component={Link} to={link} size="sm" style={{ overflowWrap: "anywhere" }}>
      {text}
    </Anchor>
  );
}

function Result({ entry }: { entry: Entry }) {
  const badge = BADGES[entry.outcome];
  return (
    <Stack gap={2} align="flex-start">
      <StateBadge state={badge.state} word={entry.count > 1 ? `${badge.word} ${entry.count} times` : badge.word} />
      {entry.error_code !== null && <Code>{entry.error_code}</Code>}
    </Stack>
  );
}

function commandOf(filters: Record<"actor" | "action" | "dataflow" | "outcome", string>): Words {
  const names = ["actor", "action", "dataflow", "outcome"] as const;
  const given = names.filter((name) => filters[name] !== "");
  return ["cbp", "audit", ...given.flatMap((name) => [`--${name}`, filters[name]])];
}
