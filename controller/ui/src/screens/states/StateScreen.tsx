import { Alert, Anchor, Badge, Button, Checkbox, Group, NumberInput, Paper, Stack, Text, TextInput, Title } from "@mantine/core";
import { useEffect, useState } from "react";
import { Link, useParams, useSearchParams } from "react-router";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import { addressOf, exactly, type DataRecord, type RecordsPage } from "@/api/records";
import { useSession } from "@/api/session";
import { Pager } from "@/components/DataTable";
import { EmptyState } from "@/components/EmptyState";
import { Icon } from "@/components/Icon";
import { Loading } from "@/components/Loading";
import { Page } from "@/components/Page";
import { ProblemMessage } from "@/components/ProblemMessage";
import { RecordTable } from "@/components/RecordTable";
import { RelativeTime } from "@/components/RelativeTime";
import { parseColumns, type SchemaColumn } from "@/format/columns";
import { formatCount, formatCounted } from "@/format/format";
import { usePaging } from "@/hooks/paging";
import { useUrlStates } from "@/hooks/urlState";
import { CorrectionDialog } from "@/screens/states/CorrectionDialog";
import { keyArguments, keyFromAddress, keyIntoAddress, keyOfForm, keyOfRecord, keyQuery, type KeyTexts } from "@/screens/states/keys";

interface Change {
  first_epoch: number;
  epoch: number;
  at: string;
  before: DataRecord[];
  after: DataRecord[];
  undone: boolean;
  run: string | null;
  correction: { by: string; reason: string } | null;
}

interface History {
  items: Change[];
  cursor: string | null;
  ends: "begin" | "not_kept" | "more";
}

/** One state: a key now and as of an epoch, its history, a correction; or all records. */
export default function StateScreen() {
  const { dataflow = "", stage = "", state = "" } = useParams();
  const [parameters, setParameters] = useSearchParams();
  const detail = useApi(["dataflows", dataflow], () =>
    client.GET("/api/v1/dataflows/{name}", { params: { path: { name: dataflow } } }),
  );
  const declared = detail.data?.stages.find((one) => one.name === stage)?.states.find((one) => one.name === state);
  const keys = parseColumns(declared?.key ?? "");
  const more = parseColumns(declared?.second_key ?? "");
  const columns = parseColumns(declared?.columns ?? "");
  const key = keyFromAddress(keys, parameters, more);
  const show = (chosen: KeyTexts) => setParameters((before) => keyIntoAddress(chosen, before));
  const clear = () => setParameters((before) => keyIntoAddress({}, before));
  const name = `${stage}.${state}`;
  const path = ["dataflows", dataflow, "state", stage, state];
  return (
    <Page
      title={name}
      titleText={`${name} of ${dataflow}`}
      lead={declared === undefined ? undefined : <code>{declared.columns}</code>}
      trail={[{ to: `/dataflows/${dataflow}/state`, label: "State" }]}
      wide
      cli={key === null ? ["cbp", "state", dataflow, name] : ["cbp", "history", dataflow, name, ...keyArguments(key)]}
    >
      {detail.isError && <ProblemMessage error={detail.error} />}
      {detail.isPending && <Loading />}
      {detail.data !== undefined && declared === undefined && (
        <EmptyState icon="stack" title={`There is no state ${name}`}>
          <Link to={`/dataflows/${dataflow}/state`}>All states of {dataflow}</Link>
        </EmptyState>
      )}
      {declared !== undefined && (
        <>
          <KeyForm keys={keys} more={more} chosen={key} onChosen={show} onCleared={clear} />
          {key === null ? (
            <AllRecords path={path} keys={[...keys, ...more]} columns={columns} onChosen={show} />
          ) : (
            <OneKey key={JSON.stringify(key)} path={path} keyTexts={key} columns={columns} keys={keys} />
          )}
        </>
      )}
    </Page>
  );
}

function KeyForm({
  keys,
  more,
  chosen,
  onChosen,
  onCleared,
}: {
  keys: readonly SchemaColumn[];
  more: readonly SchemaColumn[];
  chosen: KeyTexts | null;
  onChosen: (key: KeyTexts) => void;
  onCleared: () => void;
}) {
  const [texts, setTexts] = useState<KeyTexts>(() => chosen ?? {});
  const written = JSON.stringify(chosen);
  useEffect(() => setTexts(chosen ?? {}), [written]); // the address changed
  const complete = keyOfForm(keys, more, texts);
  return (
    <form
      aria-label="Look a key up"
      onSubmit={(event) => {
        event.preventDefault();
        onChosen(complete);
      }}
    >
      <Group align="flex-end" gap="sm">
        {[...keys, ...more].map(({ name, type }, at) => (
          <Stack key={name} gap={4}>
            <TextInput
              label={name}
              description={at < keys.length ? type : `${type}, optional`}
              value={texts[name] ?? ""}
              disabled={texts[name] === null}
              onChange={(event) => {
                const text = event.currentTarget.value;
                setTexts((before) => ({ ...before, [name]: text }));
              }}
              autoComplete="off"
              spellCheck={false}
            />
            <Checkbox
              size="xs"
              label="null"
              aria-label={`${name} is null`}
              checked={texts[name] === null}
              onChange={(event) => {
                const isNull = event.currentTarget.checked;
                setTexts((before) => ({ ...before, [name]: isNull ? null : "" }));
              }}
            />
          </Stack>
        ))}
        <Group gap="xs" pb={22}>
          <Button type="submit" leftSection={<Icon name="search" size={16} />}>
            Look up
          </Button>
          {chosen !== null && (
            <Button variant="default" onClick={onCleared}>
              All records
            </Button>
          )}
        </Group>
      </Group>
    </form>
  );
}

function AllRecords({
  path,
  keys,
  columns,
  onChosen,
}: {
  path: readonly string[];
  keys: readonly SchemaColumn[];
  columns: readonly SchemaColumn[];
  onChosen: (key: KeyTexts) => void;
}) {
  const paging = usePaging();
  const page = useApi<RecordsPage>(
    ["state", ...path, "records", paging.cursor],
    () => exactly<RecordsPage>(addressOf([...path, "records"], [["limit", 50], ["cursor", paging.cursor]])),
    { keepPrevious: true },
  );
  return (
    <section aria-label="All records">
      <Title order={2} size="h4" mb="xs">
        All records
      </Title>
      {page.isError && <ProblemMessage error={page.error} />}
      {page.isPending && <Loading />}
      {page.data !== undefined && (
        <RecordTable
          label="Records of the state"
          known={columns.map((column) => column.name)}
          records={page.data.items}
          onOpen={(record) => onChosen(keyOfRecord(keys, record))}
          empty={<EmptyState icon="stack" title="No records yet">They appear here after the first run that keeps some.</EmptyState>}
          paging={
            <Pager
              list="records"
              shown={`${formatCounted(page.data.items.length, "record")}, in the order of their hash; click one for its history`}
              first={paging.first}
              back={paging.back}
              next={paging.next(page.data.cursor)}
            />
          }
        />
      )}
    </section>
  );
}

function OneKey({
  path,
  keyTexts,
  columns,
  keys,
}: {
  path: readonly string[];
  keyTexts: KeyTexts;
  columns: readonly SchemaColumn[];
  keys: readonly SchemaColumn[];
}) {
  const session = useSession();
  const [{ epoch }, setShown] = useUrlStates({ epoch: "", "of-key": "" });
  const [isCorrecting, setCorrecting] = useState(false);
  const names = columns.map((column) => column.name);
  const asked = /^\d+$/.test(epoch) ? epoch : "";
  const paging = usePaging("of-key");
  const look = useApi<RecordsPage>(
    ["state", ...path, keyTexts, asked, paging.cursor],
    () => exactly<RecordsPage>(addressOf(path, [...keyQuery(keyTexts), ["_epoch", asked], ["_limit", 50], ["_cursor", paging.cursor]])),
    { keepPrevious: true },
  );
  // A correction replaces all records of the group, so it begins with all of them.
  const isWhole = look.data?.cursor === null && paging.cursor === undefined && Object.keys(keyTexts).length === keys.length;
  const none = look.isError && look.error.code === "not_found" && look.error.problem.details["kind"] === "state record";
  const records = none ? [] : look.data?.items;
  return (
    <>
      <Paper withBorder p="md" component="section" aria-label="The key">
        <Group justify="space-between" align="flex-end" mb="sm">
          <Title order={2} size="h4">
            {asked === "" ? "Now" : `As of epoch ${asked}`}
          </Title>
          <Group gap="xs" align="flex-end">
            <NumberInput
              size="xs"
              label="As of epoch"
              placeholder="now"
              min={0}
              allowDecimal={false}
              allowNegative={false}
              value={epoch}
              onChange={(value) => setShown({ epoch: String(value), "of-key": "" })}
              w={130}
            />
            {session.can("admin") && asked === "" && records !== undefined && (none || isWhole) && (
              <Button size="xs" variant="default" leftSection={<Icon name="settings" size={14} />} onClick={() => setCorrecting(true)}>
                Correct
              </Button>
            )}
          </Group>
        </Group>
        {look.isError && !none && <ProblemMessage error={look.error} />}
        {look.isPending && <Loading rows={2} />}
        {records !== undefined && (
          <RecordTable
            label="Records of the key"
            known={names}
            records={records}
            empty={<Text size="sm">No record has this key.</Text>}
            paging={
              <Pager
                list="records of the key"
                shown={formatCounted(records.length, "record")}
                first={paging.first}
                back={paging.back}
                next={paging.next(look.data?.cursor ?? null)}
              />
            }
          />
        )}
      </Paper>
      <KeyHistory path={path} keyTexts={keyTexts} names={names} />
      {isCorrecting && records !== undefined && (
        <CorrectionDialog
          path={path}
          keyTexts={keyTexts}
          keys={keys}
          columns={columns}
          records={records}
          onClose={() => setCorrecting(false)}
        />
      )}
    </>
  );
}

const ENDS: Record<History["ends"], string> = {
  begin: "This is the whole history of the key.",
  not_kept: "Older versions of the state are not kept.",
  more: "",
};

function KeyHistory({ path, keyTexts, names }: { path: readonly string[]; keyTexts: KeyTexts; names: readonly string[] }) {
  const paging = usePaging("history");
  const history = useApi<History>(
    ["state", ...path, "history", keyTexts, paging.cursor],
    () => exactly<History>(addressOf([...path, "history"], [...keyQuery(keyTexts), ["_limit", 20], ["_cursor", paging.cursor]])),
    { keepPrevious: true },
  );
  return (
    <section aria-label="History of the key">
      <Title order={2} size="h4" mb="xs">
        History
      </Title>
      {history.isError && <ProblemMessage error={history.error} />}
      {history.isPending && <Loading />}
      {history.data !== undefined && (
        <Stack gap="sm">
          {history.data.items.length === 0 && <Text size="sm">No epoch changed this key.</Text>}
          {history.data.items.map((change) => (
            <ChangeCard key={`${change.epoch}:${change.at}`} change={change} names={names} />
          ))}
          <Pager
            list="history"
            shown={`${formatCounted(history.data.items.length, "change")}. ${ENDS[history.data.ends]}`}
            first={paging.first}
            back={paging.back}
            next={paging.next(history.data.cursor)}
          />
        </Stack>
      )}
    </section>
  );
}

function ChangeCard({ change, names }: { change: Change; names: readonly string[] }) {
  const epochs = change.first_epoch === change.epoch ? `Epoch ${formatCount(change.epoch)}` : `Epochs ${formatCount(change.first_epoch)} to ${formatCount(change.epoch)}`;
  return (
    <Paper withBorder p="sm" component="article" aria-label={epochs}>
      <Group gap="sm" mb="xs">
        <Text fw={600}>{epochs}</Text>
        <RelativeTime at={change.at} both />
        {change.run !== null && (
          <Anchor component={Link} to={`/runs/${change.run}`}>
            Run
          </Anchor>
        )}
        {change.undone && (
          <Badge color="gray" variant="light" tt="none" c="var(--mantine-color-text)">
            Undone by a roll-back
          </Badge>
        )}
      </Group>
      {change.correction !== null && (
        <Alert p="xs" mb="xs" color="orange" icon={<Icon name="settings" size={16} />} styles={{ message: { color: "var(--mantine-color-text)" } }}>
          Corrected by {change.correction.by || "somebody"}: {change.correction.reason}
        </Alert>
      )}
      <BeforeAfter before={change.before} after={change.after} names={names} label={epochs} />
    </Paper>
  );
}

/** Records before and after a change, one beside the other. */
export function BeforeAfter({ before, after, names, label }: { before: readonly DataRecord[]; after: readonly DataRecord[]; names: readonly string[]; label: string }) {
  const sides = [
    { title: "Before", records: before },
    { title: "After", records: after },
  ];
  return (
    <Group align="flex-start" gap="md" grow preventGrowOverflow={false} wrap="wrap">
      {sides.map(({ title, records }) => (
        <div key={title} style={{ minWidth: 260 }}>
          <Text size="xs" c="dimmed" fw={600}>
            {title}
          </Text>
          <RecordTable label={`${label}: ${title.toLowerCase()}`} known={names} records={records} empty={<Text size="sm">No record</Text>} />
        </div>
      ))}
    </Group>
  );
}
