import { Button, Checkbox, Group, Modal, SegmentedControl, Stack, Text, TextInput } from "@mantine/core";
import { useState } from "react";

import { useAction } from "@/api/hooks";
import { writeExact } from "@/api/exactJson";
import { addressOf, exactly, type DataRecord } from "@/api/records";
import { ProblemMessage } from "@/components/ProblemMessage";
import type { SchemaColumn } from "@/format/columns";
import type { KeyTexts } from "@/screens/states/keys";
import { BeforeAfter } from "@/screens/states/StateScreen";
import { bodyOfCorrection } from "@/screens/states/correctionBody";

interface Preview {
  items: { key: DataRecord; before: DataRecord[]; after: DataRecord[] }[];
  keys: number;
}

/** Correct the records of one key: values, who and why, a preview, then the correction. */
export function CorrectionDialog({
  path,
  keyTexts,
  keys,
  columns,
  records,
  onClose,
}: {
  path: readonly string[];
  keyTexts: KeyTexts;
  keys: readonly SchemaColumn[];
  columns: readonly SchemaColumn[];
  records: readonly DataRecord[];
  onClose: () => void;
}) {
  const keyNames = new Set(keys.map((column) => column.name));
  const others = columns.filter((column) => !keyNames.has(column.name));
  const [kind, setKind] = useState(others.length === 0 ? "delete" : "set");
  const [values, setValues] = useState<KeyTexts>(() => firstValues(others, records));
  const [changed, setChanged] = useState<ReadonlySet<string>>(new Set());
  const [by, setBy] = useState("");
  const [reason, setReason] = useState("");
  const [request] = useState(() => crypto.randomUUID());
  const set = kind === "set" ? Object.fromEntries([...changed].map((name) => [name, values[name] ?? null])) : null;
  const body = bodyOfCorrection(keyTexts, set, columns);
  const init = (more: Record<string, string> = {}): RequestInit => ({
    method: "POST",
    body,
    headers: { "Content-Type": "application/json", ...more },
  });
  const preview = useAction(() => exactly<Preview>(addressOf([...path, "corrections", "preview"]), init()), { changes: [], notify: false });
  const correct = useAction(
    () => exactly<{ epoch: number }>(addressOf([...path, "corrections"], [["reason", reason], ["by", by]]), init({ "Idempotency-Key": request })),
    { done: (made) => `Corrected in epoch ${made.epoch}`, onDone: onClose, notify: false },
  );
  const shown = preview.data?.items[0];
  const change = (name: string, value: string | null) => {
    preview.reset();
    setChanged((before) => new Set([...before, name]));
    setValues((before) => ({ ...before, [name]: value }));
  };
  const ready = kind === "delete" || changed.size > 0;
  return (
    <Modal opened onClose={onClose} title="Correct the records of this key" size="xl">
      <Stack gap="md">
        <SegmentedControl
          aria-label="What to do"
          value={kind}
          onChange={(chosen) => {
            preview.reset();
            setKind(chosen);
          }}
          data={[
            { value: "set", label: records.length === 0 ? "Add a record" : "Set columns", disabled: others.length === 0 },
            { value: "delete", label: "Delete the records" },
          ]}
        />
        {kind === "set" && (
          <Group gap="sm" align="flex-start">
            {others.map(({ name, type, nullable }) => (
              <Stack key={name} gap={4}>
                <TextInput
                  label={name}
                  description={type}
                  value={values[name] ?? ""}
                  disabled={values[name] === null && changed.has(name)}
                  onChange={(event) => change(name, event.currentTarget.value)}
                  autoComplete="off"
                  spellCheck={false}
                />
                {nullable && (
                  <Checkbox size="xs" label="null" aria-label={`${name} becomes null`} checked={values[name] === null && changed.has(name)} onChange={(event) => change(name, event.currentTarget.checked ? null : "")} />
                )}
              </Stack>
            ))}
          </Group>
        )}
        <Group grow>
          <TextInput label="Reason" required maxLength={1000} value={reason} onChange={(event) => setReason(event.currentTarget.value)} description="Stored permanently" />
          <TextInput label="By" maxLength={200} value={by} onChange={(event) => setBy(event.currentTarget.value)} description="Name of the person who asks for the correction" />
        </Group>
        {shown !== undefined && (
          <section aria-label="What would change">
            <Text fw={600} size="sm" mb={4}>
              What would change
            </Text>
            <BeforeAfter before={shown.before} after={shown.after} names={columns.map((column) => column.name)} label="Preview" />
          </section>
        )}
        {preview.isError && <ProblemMessage error={preview.error} />}
        {correct.isError && <ProblemMessage error={correct.error} />}
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          {shown === undefined ? (
            <Button disabled={!ready} loading={preview.isPending} onClick={() => preview.mutate()}>
              Show what changes
            </Button>
          ) : (
            <Button color={kind === "delete" ? "red" : "signal"} disabled={reason.trim() === ""} loading={correct.isPending} onClick={() => correct.mutate()}>
              {kind === "delete" ? "Delete" : "Correct"}
            </Button>
          )}
        </Group>
      </Stack>
    </Modal>
  );
}

function firstValues(columns: readonly SchemaColumn[], records: readonly DataRecord[]): KeyTexts {
  const first = records[0];
  return Object.fromEntries(
    columns.map(({ name }) => {
      const value = first?.[name];
      if (value === null || value === undefined) return [name, null];
      return [name, typeof value === "string" ? value : writeExact(value)];
    }),
  );
}
