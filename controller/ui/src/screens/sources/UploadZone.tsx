import "@mantine/dropzone/styles.css";

import { Group, Progress, Stack, Text } from "@mantine/core";
import { Dropzone } from "@mantine/dropzone";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import { problemOf, ProblemError } from "@/api/problem";
import { addressOf } from "@/api/records";
import { Icon } from "@/components/Icon";
import { StateBadge } from "@/components/StateBadge";
import { formatBytes } from "@/format/format";
import { followed, isOpen, outcomeOf, sendFile, type Sending } from "@/screens/sources/upload";

const SHOWN_MAX = 50;
/** The newest claims, among which those of the uploads are. */
const CLAIMS = 100;
/** How often what is received is asked for again until it is read. */
const POLL = 2_000;

/** Where files are dropped or chosen; each is sent, with its progress and what became of it. */
export function UploadZone({ dataflow, source }: { dataflow: string; source: string }) {
  const queries = useQueryClient();
  const [sendings, setSendings] = useState<readonly Sending[]>([]);
  const known = useApi(
    ["claims", dataflow, "uploads", source],
    () => client.GET("/api/v1/dataflows/{name}/claims", { params: { path: { name: dataflow }, query: { source, limit: CLAIMS } } }),
    { enabled: sendings.some(isOpen), every: (page) => (followed(sendings, page?.items ?? []).some(isOpen) ? POLL : undefined), keepPrevious: true },
  );
  const shown = followed(sendings, known.data?.items ?? []);
  const update = (id: string, change: Partial<Sending>) =>
    setSendings((before) => before.map((one) => (one.id === id ? { ...one, ...change } : one)));
  const send = async (files: File[]) => {
    const begun = files.map((file) => ({ id: crypto.randomUUID(), name: file.name, bytes: file.size, sent: 0 }));
    setSendings((before) => [...begun, ...before].slice(0, SHOWN_MAX));
    for (const [number, one] of begun.entries()) {
      const file = files[number]!;
      const address = addressOf(["dataflows", dataflow, "sources", source, "files"], [["name", file.name]]);
      try {
        const claim = await sendFile(address, file, { "Idempotency-Key": one.id }, (sent) => update(one.id, { sent }));
        update(one.id, { claim, sent: file.size });
      } catch (error) {
        update(one.id, { problem: error instanceof ProblemError ? error : new ProblemError(problemOf(error)) });
      }
    }
    await queries.invalidateQueries();
  };
  return (
    <Stack gap="xs">
      <Dropzone onDrop={(files) => void send(files)} multiple p="md" inputProps={{ "aria-label": `Files for ${source}` }} aria-label={`Upload files to ${source}`}>
        <Group justify="center" gap="sm" style={{ pointerEvents: "none" }}>
          <Icon name="upload" size={24} />
          <Text size="sm">
            Drop files here, or press to choose some. Each becomes one increment of <b>{source}</b>.
          </Text>
        </Group>
      </Dropzone>
      {sendings.length > 0 && (
        <Stack gap={6} component="ul" p={0} m={0} aria-label="Uploads" style={{ listStyle: "none" }}>
          {shown.map((one) => (
            <UploadRow key={one.id} sending={one} />
          ))}
        </Stack>
      )}
    </Stack>
  );
}

function UploadRow({ sending }: { sending: Sending }) {
  const { state, word } = outcomeOf(sending);
  const share = sending.bytes === 0 ? 100 : (100 * sending.sent) / sending.bytes;
  const why = sending.problem?.problem.message ?? reasonOf(sending);
  return (
    <Stack component="li" gap={2}>
      <Group gap="sm" wrap="wrap">
        <Text size="sm" style={{ overflowWrap: "anywhere" }}>
          {sending.name}
        </Text>
        <Text size="xs" c="dimmed">
          {formatBytes(sending.bytes)}
        </Text>
        <StateBadge state={state} word={word} />
      </Group>
      {state === "running" && <Progress value={share} size="sm" aria-label={`${sending.name}: sent`} />}
      {why !== "" && (
        <Text size="xs" style={{ overflowWrap: "anywhere" }}>
          {why} {sending.problem !== undefined && <code>{sending.problem.code}</code>}
        </Text>
      )}
    </Stack>
  );
}

function reasonOf(sending: Sending): string {
  const { claim } = sending;
  if (claim?.status === "duplicate") return `The content equals that of ${String(claim.same_as?.["file"] ?? "an earlier file")}, so it is not applied again.`;
  return String(claim?.reason?.["message"] ?? "");
}
