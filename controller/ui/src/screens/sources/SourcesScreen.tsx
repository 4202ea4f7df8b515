import { Alert, Anchor, Button, Code, Group, Paper, Select, SimpleGrid, Stack, Text, Title, VisuallyHidden } from "@mantine/core";
import { useState } from "react";
import { Link, useParams } from "react-router";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import type { components } from "@/api/schema";
import { useSession } from "@/api/session";
import { DataTable, Pager, type Column } from "@/components/DataTable";
import { EmptyState } from "@/components/EmptyState";
import { Icon } from "@/components/Icon";
import { Loading } from "@/components/Loading";
import { Page } from "@/components/Page";
import { ProblemMessage } from "@/components/ProblemMessage";
import { RelativeTime } from "@/components/RelativeTime";
import { StateBadge } from "@/components/StateBadge";
import { formatBytes, formatCount, formatCounted, UNKNOWN } from "@/format/format";
import { usePaging } from "@/hooks/paging";
import { useUrlStates } from "@/hooks/urlState";
import { ReachLine } from "@/screens/recovery/Reach";
import { CorrectionDialog } from "@/screens/sources/CorrectionDialog";
import { reasonText } from "@/screens/sources/upload";
import { UploadZone } from "@/screens/sources/UploadZone";

type Source = components["schemas"]["SourceFolderOut"];
type Reject = components["schemas"]["RejectedRecordOut"];
type Claim = components["schemas"]["ClaimOut"];
type Status = NonNullable<Claim["status"]>;

/** So many names that are not taken in are shown at once; of more, only how many they are. */
const OPEN_MAX = 5;

export const WORDS: Record<string, { state: string; word: string }> = {
  claiming: { state: "claimed", word: "Being claimed" },
  claimed: { state: "claimed", word: "Being read" },
  accepted: { state: "accepted", word: "Accepted" },
  duplicate: { state: "skipped", word: "Duplicate" },
  quarantined: { state: "quarantined", word: "In quarantine" },
  withdrawn: { state: "skipped", word: "Withdrawn" },
  readmitted: { state: "skipped", word: "Readmitted" },
  discarded: { state: "skipped", word: "Discarded" },
};

/** What arrives: counts, folders, uploads, files with their state, quarantine. */
export default function SourcesScreen() {
  const { dataflow = "" } = useParams();
  const sources = useApi(["sources", dataflow], () =>
    client.GET("/api/v1/dataflows/{name}/sources", { params: { path: { name: dataflow } } }),
  );
  const [view, setView] = useUrlStates({ source: "", status: "", rejects: "" });
  const names = sources.data?.items.map((one) => one.name) ?? [];
  const source = names.includes(view.source) ? view.source : (names[0] ?? "");
  const shown = sources.data?.items.find((one) => one.name === source);
  return (
    <Page title="Sources" titleText={`Sources of ${dataflow}`} lead="Files that arrived, their status, and problems that need attention." wide cli={["cbp", "sources", dataflow]}>
      {sources.isError && <ProblemMessage error={sources.error} />}
      {sources.isPending && <Loading />}
      {names.length > 1 && (
        <Select label="Source" maw={320} data={names} value={source} allowDeselect={false} onChange={(name) => setView({ source: name ?? "", status: "", rejects: "" })} />
      )}
      {sources.data !== undefined && names.length === 0 && <EmptyState title="No source">The `sources` of a document declare where files arrive.</EmptyState>}
      {shown !== undefined && (
        <OneSource
          key={source}
          dataflow={dataflow}
          source={shown}
          status={view.status}
          onStatus={(status) => setView({ status })}
          rejects={view.rejects !== ""}
          onRejects={(open) => setView({ rejects: open ? "shown" : "" })}
        />
      )}
    </Page>
  );
}

interface Shown {
  dataflow: string;
  source: Source;
  status: string;
  onStatus: (status: string) => void;
  /** Whether the rejected records are listed. */
  rejects: boolean;
  onRejects: (open: boolean) => void;
}

function OneSource({ dataflow, source, status, onStatus, rejects, onRejects }: Shown) {
  const session = useSession();
  return (
    <Stack gap="md">
      <Figures source={source} onStatus={onStatus} onRejects={() => onRejects(!rejects)} />
      {rejects && <Rejects dataflow={dataflow} source={source.name} />}
      {source.warning !== "" && (
        <Alert color="orange" icon={<Icon name="alert" />} title="Needs attention" styles={{ message: { color: "var(--mantine-color-text)" } }}>
          {source.warning}
        </Alert>
      )}
      {source.trouble !== null && source.trouble !== undefined && (
        <Alert color="red" icon={<Icon name="alert" />} title={`No files are taken in (${String(source.trouble.error["error_code"] ?? "")})`} styles={{ message: { color: "var(--mantine-color-text)" } }}>
          {String(source.trouble.error["message"] ?? "")} Tried {formatCounted(source.trouble.tries, "time")}; next try <RelativeTime at={source.trouble.retry_at} />.
        </Alert>
      )}
      {source.oldest_unclaimed.length > 0 && <Unclaimed source={source} />}
      {session.can("operator") && <UploadZone dataflow={dataflow} source={source.name} />}
      <Text size="sm">
        Or move complete files into <Code style={{ overflowWrap: "anywhere" }}>{source.folder}</Code>
      </Text>
      {source.bucket !== null && source.bucket !== undefined && <Bucket bucket={source.bucket} />}
      <ReachLine dataflow={dataflow} source={source.name} />
      <Files dataflow={dataflow} source={source.name} status={status} onStatus={onStatus} />
    </Stack>
  );
}

function Bucket({ bucket }: { bucket: NonNullable<Source["bucket"]> }) {
  const example = bucket.oldest_left_out[0];
  return (
    <Text size="sm">
      Takes in the objects below <Code style={{ overflowWrap: "anywhere" }}>{bucket.location}</Code>. Last listing:{" "}
      <RelativeTime at={bucket.listed_at} never="none yet" />, {formatCounted(bucket.objects, "object")}
      {bucket.waiting > 0 && `; ${formatCount(bucket.waiting)} still to fetch`}
      {example !== undefined && `; ${formatCount(bucket.left_out)} left out, such as ${example.name} (${example.why})`}.
    </Text>
  );
}

interface Figure {
  label: string;
  value: number;
  more?: string;
  /** The state of the files that are counted. */
  status?: string;
  onShow?: () => void;
}

function Figures({ source, onStatus, onRejects }: { source: Source; onStatus: (status: string) => void; onRejects: () => void }) {
  const { files } = source;
  const figures = [
    { label: "Waiting in the folder", value: source.waiting, more: formatBytes(source.waiting_bytes) },
    { label: "Being taken in", value: files.claimed, status: "claimed" },
    { label: "Accepted", value: files.accepted, more: `${formatCount(files.applied)} applied by every stage`, status: "accepted" },
    { label: "Duplicates", value: files.duplicate, status: "duplicate" },
    { label: "In quarantine", value: files.quarantined, more: files.quarantined > 0 ? "Needs a decision" : "", status: "quarantined" },
    ...(source.rejected > 0 ? [{ label: "Records rejected", value: source.rejected, more: "The rest of their files was accepted", onShow: onRejects }] : []),
  ];
  return (
    <section aria-label={`Counts of ${source.name}`}>
      <Text size="sm" mb="xs">
        {formatCounted(files.arrived, "file")} arrived. Last arrival: <RelativeTime at={files.last_arrival_at} never="none yet" />.
      </Text>
      <SimpleGrid cols={{ base: 2, sm: 3, lg: 5 }} spacing="sm">
        {figures.map(({ label, value, more, status, onShow }: Figure) => (
          <Paper key={label} withBorder p="sm">
            <Text size="xs" c="dimmed">
              {label}
            </Text>
            <Group gap={6} align="baseline">
              <Text size="xl" fw={650} className="numeric">
                {formatCount(value)}
              </Text>
              {status === "quarantined" && value > 0 && <Icon name="alert" size={18} />}
            </Group>
            <Text size="xs" c="dimmed">
              {more}
            </Text>
            {status !== undefined && value > 0 && (
              <Anchor component="button" size="xs" onClick={() => onStatus(status)} aria-label={`Show files: ${label}`}>
                Show
              </Anchor>
            )}
            {onShow !== undefined && (
              <Anchor component="button" size="xs" onClick={onShow} aria-label="Show or hide the rejected records">
                Show
              </Anchor>
            )}
          </Paper>
        ))}
      </SimpleGrid>
    </section>
  );
}

function Rejects({ dataflow, source }: { dataflow: string; source: string }) {
  const paging = usePaging();
  const query = { limit: 50, ...(paging.cursor === undefined ? {} : { cursor: paging.cursor }) };
  const rejects = useApi(
    ["rejects", dataflow, source, query],
    () => client.GET("/api/v1/dataflows/{name}/sources/{source}/rejects", { params: { path: { name: dataflow, source }, query } }),
    { keepPrevious: true },
  );
  const items = rejects.data?.items ?? [];
  return (
    <section aria-label="List of rejected records">
      <Title order={2} size="h4" mb="xs">
        Rejected records
      </Title>
      {rejects.isError && <ProblemMessage error={rejects.error} />}
      {rejects.isPending && <Loading />}
      {rejects.data !== undefined && (
        <DataTable
          label="Rejected records"
          columns={REJECT_COLUMNS}
          rows={items}
          rowKey={(row) => `${row.claim}/${row.line}/${row.column_name}`}
          minWidth={860}
          empty={<EmptyState title="No record was rejected" />}
          paging={<Pager list="rejected records" shown={formatCounted(items.length, "record")} first={paging.first} back={paging.back} next={paging.next(rejects.data.cursor)} />}
        />
      )}
    </section>
  );
}

const REJECT_COLUMNS: Column<Reject>[] = [
  { id: "file", header: "File", render: (row) => row.file },
  { id: "line", header: "Line", align: "right", render: (row) => formatCount(row.line) },
  { id: "why", header: "Why", render: (row) => row.message },
  { id: "text", header: "Record", render: (row) => <Code style={{ overflowWrap: "anywhere" }}>{row.text}</Code> },
];

function Unclaimed({ source }: { source: Source }) {
  return (
    <details open={source.oldest_unclaimed.length <= OPEN_MAX}>
      <summary>
        <Text span size="sm">
          {formatCounted(source.unclaimed, "entry", "entries")} of the folder {source.unclaimed === 1 ? "is" : "are"} not taken in
        </Text>
      </summary>
      <ul>
        {source.oldest_unclaimed.map((one) => (
          <li key={one.name} style={{ overflowWrap: "anywhere" }}>
            <Text span size="sm">
              {one.name}: {one.why} (<RelativeTime at={one.since} />)
            </Text>
          </li>
        ))}
      </ul>
    </details>
  );
}

function Files({ dataflow, source, status, onStatus }: { dataflow: string; source: string; status: string; onStatus: (status: string) => void }) {
  const session = useSession();
  const paging = usePaging();
  const [corrected, setCorrected] = useState("");
  const known = status in WORDS ? (status as Status) : undefined;
  const query = {
    source,
    limit: 50,
    ...(known === undefined ? {} : { status: known }),
    ...(paging.cursor === undefined ? {} : { cursor: paging.cursor }),
  };
  const claims = useApi(
    ["claims", dataflow, query],
    () => client.GET("/api/v1/dataflows/{name}/claims", { params: { path: { name: dataflow }, query: query as never } }),
    { keepPrevious: true },
  );
  const items = claims.data?.items ?? [];
  return (
    <section aria-label="List of files">
      <Group justify="space-between" align="flex-end" mb="xs">
        <Title order={2} size="h4">
          Files
        </Title>
        <Select
          size="xs"
          label="State"
          data={[{ value: "", label: "All" }, ...Object.entries(WORDS).map(([value, { word }]) => ({ value, label: word }))]}
          value={status in WORDS ? status : ""}
          allowDeselect={false}
          onChange={(chosen) => onStatus(chosen ?? "")}
        />
      </Group>
      {claims.isError && <ProblemMessage error={claims.error} />}
      {claims.isPending && <Loading />}
      {claims.data !== undefined && (
        <DataTable
          label="Files"
          columns={[
            ...columnsOf(dataflow, source, items.some((one) => one.rejected > 0)),
            ...(session.can("admin") ? [correctColumn(items, setCorrected)] : []),
          ]}
          rows={items}
          rowKey={(row) => row.id}
          minWidth={860}
          empty={<Nothing filtered={known !== undefined} onAll={() => onStatus("")} />}
          paging={<Pager list="files" shown={formatCounted(items.length, "file")} first={paging.first} back={paging.back} next={paging.next(claims.data.cursor)} />}
        />
      )}
      {corrected !== "" && <CorrectionDialog dataflow={dataflow} source={source} file={corrected} onClose={() => setCorrected("")} />}
    </section>
  );
}

/** What corrects a file that counts, the newest of its name: another one in its place, or none. */
function correctColumn(items: readonly Claim[], onCorrect: (file: string) => void): Column<Claim> {
  return {
    id: "correct",
    header: "Correct",
    render: (row) =>
      row.same_as?.["by"] !== "retracted" && row === items.find((one) => one.status === "accepted" && one.path === row.path) ? (
        <Button size="compact-xs" variant="default" onClick={() => onCorrect(row.path)}>
          Correct
          <VisuallyHidden> {row.path}</VisuallyHidden>
        </Button>
      ) : (
        ""
      ),
  };
}

function columnsOf(dataflow: string, source: string, rejects: boolean): Column<Claim>[] {
  return [
    {
      id: "file",
      header: "File",
      render: (row) =>
        row.reason === null ? (
          <Text size="sm" lineClamp={2} title={row.path} style={{ overflowWrap: "anywhere" }}>
            {row.path}
          </Text>
        ) : (
          <Anchor
            component={Link}
            to={`/dataflows/${dataflow}/sources/${source}/quarantine/${row.id}`}
            size="sm"
            lineClamp={2}
            title={row.path}
            style={{ overflowWrap: "anywhere" }}
          >
            {row.path}
          </Anchor>
        ),
    },
    {
      id: "state",
      header: "State",
      width: 175,
      render: (row) => {
        const known = WORDS[row.status];
        return <StateBadge state={known?.state ?? row.status} {...(known === undefined ? {} : { word: known.word })} />;
      },
    },
    { id: "size", header: "Size", align: "right", width: 90, render: (row) => formatBytes(row.bytes) },
    { id: "arrived", header: "Arrived", render: (row) => <RelativeTime at={row.created_at} /> },
    {
      id: "increment",
      header: "Increment",
      align: "right",
      render: (row) =>
        row.index === null ? (
          UNKNOWN
        ) : (
          <Anchor component={Link} to={`/dataflows/${dataflow}/increments/${source}/${row.index}`} size="sm" title="Its records">
            {formatCount(row.index)}
          </Anchor>
        ),
    },
    ...(rejects ? [{ id: "rejected", header: "Rejected", align: "right", render: (row) => formatCount(row.rejected) } satisfies Column<Claim>] : []),
    {
      id: "why",
      header: "Why",
      render: (row) => (
        <Text size="xs" lineClamp={2} style={{ overflowWrap: "anywhere" }} component="span">
          {whyOf(row)}
        </Text>
      ),
    },
  ];
}

function whyOf(claim: Claim): string {
  if (claim.reason !== null) return reasonText(claim.reason);
  const by = claim.same_as?.["by"];
  if (by === "replaced" || by === "retracted") return by === "replaced" ? "replaces the earlier file of this name" : "takes back the earlier file of this name";
  return claim.same_as === null ? "" : `has the content of ${String(claim.same_as["file"] ?? "")}`;
}

function Nothing({ filtered, onAll }: { filtered: boolean; onAll: () => void }) {
  if (filtered) {
    return (
      <EmptyState icon="check" title="No file is in this state" actions={<Button variant="default" onClick={onAll}>All files</Button>} />
    );
  }
  return <EmptyState title="No file has arrived yet">Drop a file above, or move one into the folder; it is taken in within a second or two.</EmptyState>;
}
