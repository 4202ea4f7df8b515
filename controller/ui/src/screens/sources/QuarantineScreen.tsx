import { Alert, Badge, Button, Code, FileInput, Group, Paper, SegmentedControl, Stack, Text, Textarea, TextInput, Title } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useState } from "react";
import { Link, useNavigate, useParams } from "react-router";

import { client } from "@/api/client";
import { useAction, useApi } from "@/api/hooks";
import { problemOf } from "@/api/problem";
import { addressOf, download, exactly } from "@/api/records";
import type { components } from "@/api/schema";
import { useSession } from "@/api/session";
import { Icon } from "@/components/Icon";
import { Loading } from "@/components/Loading";
import { Page } from "@/components/Page";
import { ProblemMessage } from "@/components/ProblemMessage";
import { RelativeTime } from "@/components/RelativeTime";
import { StateBadge } from "@/components/StateBadge";
import { formatBytes } from "@/format/format";
import { useDraft } from "@/hooks/drafts";
import { WORDS } from "@/screens/sources/SourcesScreen";

type Quarantined = components["schemas"]["QuarantinedOut"];
type Decided = components["schemas"]["DecidedOut"];
type Way = "edit" | "file" | "as_it_is" | "discard";

/** One refused file: why, the lines around its mistakes, and what becomes of it. */
export default function QuarantineScreen() {
  const { dataflow = "", source = "", claim = "" } = useParams();
  const session = useSession();
  const shown = useApi(
    ["claims", dataflow, source, claim],
    () =>
      client.GET("/api/v1/dataflows/{name}/sources/{source}/quarantine/{claim}", {
        params: { path: { name: dataflow, source, claim } },
      }),
    { follow: false },
  );
  const file = shown.data;
  const known = file === undefined ? undefined : WORDS[file.claim.status];
  return (
    <Page
      title={file?.claim.path ?? "A refused file"}
      trail={[{ to: `/dataflows/${dataflow}/sources?source=${encodeURIComponent(source)}`, label: `Source ${source}` }]}
      cli={["cbp", "quarantine", "show", dataflow, source, claim]}
      lead={
        file !== undefined && (
          <Group gap="sm">
            <StateBadge state={known?.state ?? file.claim.status} word={known?.word ?? file.claim.status} />
            <span>{file.file_bytes === null ? "the file no longer exists" : formatBytes(file.file_bytes)}</span>
            <RelativeTime at={file.claim.created_at} both />
          </Group>
        )
      }
    >
      {shown.isError && <ProblemMessage error={shown.error} />}
      {shown.isPending && <Loading />}
      {file !== undefined && (
        <>
          <Reason file={file} />
          <Excerpt file={file} dataflow={dataflow} source={source} />
          {session.can("operator") &&
            (file.claim.status === "quarantined" ? (
              <Decide key={claim} dataflow={dataflow} source={source} file={file} />
            ) : (
              <Decision dataflow={dataflow} source={source} file={file} />
            ))}
        </>
      )}
    </Page>
  );
}

function Reason({ file }: { file: Quarantined }) {
  const reason = file.claim.reason ?? {};
  return (
    <Alert color="red" icon={<Icon name="alert" />} title="Why it was refused" styles={{ message: { color: "var(--mantine-color-text)" } }}>
      <Text size="sm" style={{ overflowWrap: "anywhere", whiteSpace: "pre-wrap" }}>
        {String(reason["message"] ?? "")}
      </Text>
      <Group gap="xs" mt="xs">
        <Code>{String(reason["code"] ?? "")}</Code>
        {typeof reason["line"] === "number" && <Text size="sm">line {reason["line"]}</Text>}
        {typeof reason["column"] === "string" && (
          <Text size="sm">
            column <Code>{reason["column"]}</Code>
          </Text>
        )}
      </Group>
    </Alert>
  );
}

function Excerpt({ file, dataflow, source }: { file: Quarantined; dataflow: string; source: string }) {
  const address = addressOf(["dataflows", dataflow, "sources", source, "quarantine", file.claim.id, "content"]);
  const fetchFile = () =>
    download(address, file.claim.path).catch((error: unknown) => {
      notifications.show({ title: problemOf(error).title, message: problemOf(error).message, color: "red" });
    });
  return (
    <section aria-label="Lines of the file">
      <Group justify="space-between" mb="xs">
        <Title order={2} size="h4">
          {file.lines.some((line) => line.mistakes.length > 0) ? "Around the mistakes" : "The first lines"}
        </Title>
        {file.file_bytes !== null && (
          <Button size="compact-sm" variant="default" leftSection={<Icon name="file" size={14} />} onClick={() => void fetchFile()}>
            Download the file
          </Button>
        )}
      </Group>
      {file.hint !== "" && <Text size="sm">{file.hint}</Text>}
      {file.lines.length > 0 && (
        <Paper withBorder style={{ overflowX: "auto" }} tabIndex={0} role="region" aria-label="Lines">
          {file.lines.map((line) => (
            <Stack key={line.number} gap={0} px="sm" py={2} {...(line.mistakes.length > 0 ? { bg: "var(--mantine-color-red-light)" } : {})} data-line={line.number}>
              <Group gap="sm" wrap="nowrap" align="flex-start">
                <Text span size="xs" c="var(--mantine-color-text)" className="numeric" w={52} ta="right" style={{ flexShrink: 0 }}>
                  {line.mistakes.length > 0 ? "▶ " : ""}
                  {line.number}
                </Text>
                <Text span size="sm" ff="monospace" style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }}>
                  {line.text}
                </Text>
              </Group>
              {line.mistakes.map((mistake) => (
                <Text key={mistake} size="xs" fw={600} pl={64} style={{ overflowWrap: "anywhere" }}>
                  {mistake}
                </Text>
              ))}
            </Stack>
          ))}
        </Paper>
      )}
      <Text size="xs" c="dimmed" mt={4} style={{ overflowWrap: "anywhere" }}>
        {file.folder_path}
      </Text>
    </section>
  );
}

function Decide({ dataflow, source, file }: { dataflow: string; source: string; file: Quarantined }) {
  const navigate = useNavigate();
  const canEdit = file.content !== null;
  const [way, setWay] = useState<Way>(canEdit ? "edit" : "file");
  const [text, setText] = useDraft(`content ${file.claim.id}`, file.content ?? "");
  const [mended, setMended] = useState<File | null>(null);
  const [reason, setReason] = useDraft(`reason ${file.claim.id}`, "");
  const [by, setBy] = useState("");
  const action = way === "discard" ? "discard" : "readmit";
  const address = addressOf(
    ["dataflows", dataflow, "sources", source, "quarantine", file.claim.id, action],
    [["reason", reason], ["by", by], ["as_it_is", way === "as_it_is" ? true : undefined]],
  );
  const body = way === "edit" ? new Blob([text]) : way === "file" ? mended : null;
  const decide = useAction(
    () =>
      exactly<Decided>(address, {
        method: "POST",
        ...(body === null ? {} : { body, headers: { "Content-Type": "application/octet-stream" } }),
      }),
    {
      done: way === "discard" ? "Discarded; the file is kept with the finished ones" : "Readmitted; it is read within a second or two",
      onDone: () => void navigate(`/dataflows/${dataflow}/sources?source=${encodeURIComponent(source)}`),
      notify: false,
    },
  );
  const refused = way === "as_it_is" ? file.as_it_is_refused : "";
  const missing = [
    ...(way === "edit" && text === file.content ? ["change the content"] : []),
    ...(way === "file" && mended === null ? ["choose a file"] : []),
    ...(reason.trim() === "" ? ["give a reason"] : []),
  ];
  const ready = missing.length === 0 && refused === "";
  return (
    <Paper withBorder p="md" component="section" aria-label="Decision about the file">
      <Stack gap="sm">
        <Title order={2} size="h4">
          Decision
        </Title>
        <SegmentedControl
          aria-label="Decision about the file"
          value={way}
          onChange={(chosen) => setWay(chosen as Way)}
          style={{ alignSelf: "flex-start", maxWidth: "100%", flexWrap: "wrap", height: "auto" }}
          data={[
            { value: "edit", label: "Correct the text here", disabled: !canEdit },
            { value: "file", label: "Upload a corrected file" },
            { value: "as_it_is", label: "Admit unchanged" },
            { value: "discard", label: "Discard" },
          ]}
        />
        {way === "edit" && (
          <Textarea
            label="Content of the file"
            value={text}
            onChange={(event) => setText(event.currentTarget.value)}
            autosize
            minRows={6}
            maxRows={24}
            spellCheck={false}
            styles={{ input: { fontFamily: "var(--mantine-font-family-monospace)", whiteSpace: "pre", overflowX: "auto" } }}
          />
        )}
        {way === "file" && (
          <FileInput label="The corrected file" description="Admitted under the name of the refused file" placeholder="Choose a file" value={mended} onChange={setMended} clearable />
        )}
        {way === "as_it_is" && <Text size="sm">{refused === "" ? "Choose this if the schema or the options of the source have changed since the file was refused." : refused}</Text>}
        {way === "discard" && <Text size="sm">The file is not applied. It is kept like finished files, and you can undo this decision.</Text>}
        <Group grow align="flex-start">
          <TextInput label="Reason" required maxLength={1000} value={reason} onChange={(event) => setReason(event.currentTarget.value)} description="Kept with the file" />
          <TextInput label="By" maxLength={200} value={by} onChange={(event) => setBy(event.currentTarget.value)} description="Who decides" />
        </Group>
        {decide.isError && <ProblemMessage error={decide.error} />}
        <Group>
          <Button color={way === "discard" ? "red" : "signal"} disabled={!ready} loading={decide.isPending} onClick={() => decide.mutate()}>
            {way === "discard" ? "Discard" : "Readmit"}
          </Button>
          <Text size="xs" c="dimmed">
            {refused === "" && missing.length > 0 ? `To continue, ${missing.join(" and ")}. ` : ""}
            The original file is kept, with the reason of its refusal and this decision.
          </Text>
        </Group>
      </Stack>
    </Paper>
  );
}

function Decision({ dataflow, source, file }: { dataflow: string; source: string; file: Quarantined }) {
  const decision = (file.claim.reason?.["decision"] ?? {}) as Record<string, unknown>;
  const restore = useAction(
    () =>
      client.POST("/api/v1/dataflows/{name}/sources/{source}/quarantine/{claim}/restore", {
        params: { path: { name: dataflow, source, claim: file.claim.id } },
      }),
    { done: "The file is in quarantine again", notify: false },
  );
  const other = String(decision["readmitted_as"] ?? "");
  return (
    <Paper withBorder p="md" component="section" aria-label="Decision">
      <Group gap="sm" mb="xs">
        <Badge variant="light" tt="none" c="var(--mantine-color-text)">
          {file.claim.status}
        </Badge>
        {typeof decision["at"] === "string" && <RelativeTime at={decision["at"]} both />}
        <Text size="sm">
          by {String(decision["by"] || "somebody")}: {String(decision["why"] ?? "")}
        </Text>
      </Group>
      {other !== "" && (
        <Text size="sm" mb="xs">
          In its place: claim <Code>{other}</Code>, under <Link to={`/dataflows/${dataflow}/sources?source=${encodeURIComponent(source)}`}>Files</Link>.
        </Text>
      )}
      {restore.isError && <ProblemMessage error={restore.error} />}
      <Button variant="default" loading={restore.isPending} leftSection={<Icon name="undo" size={16} />} onClick={() => restore.mutate()}>
        Undo this decision
      </Button>
    </Paper>
  );
}
