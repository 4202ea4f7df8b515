import { Button, Checkbox, FileInput, Group, Modal, SegmentedControl, Stack, Text, TextInput } from "@mantine/core";
import { useState } from "react";

import { useAction, useApi } from "@/api/hooks";
import { ProblemError } from "@/api/problem";
import { addressOf, exactly } from "@/api/records";
import type { components } from "@/api/schema";
import { Asked } from "@/components/Asked";
import { CliHint } from "@/components/CliHint";
import { Notice } from "@/components/Notice";
import { ProblemMessage } from "@/components/ProblemMessage";
import { ReachLine } from "@/screens/recovery/Reach";
import { correctionInWords } from "@/screens/sources/correction";

type Compared = components["schemas"]["ComparedOut"];
type Claim = components["schemas"]["ClaimOut"];
type How = "replace" | "retract";

interface CorrectionDialogProps {
  dataflow: string;
  source: string;
  /** Name of the file that counts. */
  file: string;
  onClose: () => void;
}

/** Replaces a file, or takes it back; shows what that changes, or why it is refused, first. */
export function CorrectionDialog({ dataflow, source, file, onClose }: CorrectionDialogProps) {
  const [how, setHow] = useState<How>("replace");
  const [right, setRight] = useState<File | null>(null);
  const [by, setBy] = useState("");
  const [reason, setReason] = useState("");
  const [rebuild, setRebuild] = useState(false);
  const path = ["dataflows", dataflow, "sources", source, how === "replace" ? "replacements" : "retractions"];
  const sent = how === "replace" && right !== null ? { body: right } : {};
  const headers = how === "replace" ? { headers: { "Content-Type": "application/octet-stream" } } : {};
  const init = { method: "POST", ...headers, ...sent };
  const action = useAction(
    () => exactly<Claim>(addressOf(path, [["name", file], ["by", by], ["reason", reason], ["rebuild", rebuild]]), init),
    {
      done:
        (how === "replace" ? `${file} is being replaced` : `${file} is being taken back`) +
        (rebuild ? `; next, build new tables of ${dataflow} on the screen Recovery` : ""),
      onDone: onClose,
      notify: false,
    },
  );
  const asked = how === "retract" || right !== null;
  const preview = useApi(
    ["correction", dataflow, source, file, how, rebuild, right?.name, right?.size, right?.lastModified],
    () => exactly<Compared>(addressOf([...path, "preview"], [["name", file], ["rebuild", rebuild]]), init),
    // What is done cannot be previewed again.
    { enabled: asked && !action.isPending && !action.isSuccess, follow: false },
  );
  return (
    <Modal opened onClose={onClose} size="lg" title={`Correct ${file}`} closeButtonProps={{ "aria-label": "Close" }}>
      <form
        aria-label="Correct a file"
        onSubmit={(event) => {
          event.preventDefault();
          action.mutate();
        }}
      >
        <Stack gap="md">
          <SegmentedControl
            aria-label="Kind of correction"
            value={how}
            onChange={(value) => setHow(value as How)}
            data={[
              { value: "replace", label: "Replace the file with another one" },
              { value: "retract", label: "Retract the file" },
            ]}
          />
          {how === "replace" && (
            <FileInput label="The corrected file" placeholder="Choose a file" required value={right} onChange={setRight} />
          )}
          <ReachLine dataflow={dataflow} source={source} />
          {asked && (
            <Asked query={preview} rows={1}>
              {(made) => (
                <Notice tone="warn" title="What this changes">
                  {correctionInWords(made)}
                </Notice>
              )}
            </Asked>
          )}
          {asked && (rebuild || isUnfollowed(preview.error)) && (
            <Checkbox
              label="Accept the file anyway: stages that cannot apply it stop until new tables are swapped in"
              description="Then build new tables of the dataflow on the screen Recovery; they are computed from the current files."
              checked={rebuild}
              onChange={(event) => setRebuild(event.currentTarget.checked)}
            />
          )}
          <Group grow align="flex-start">
            <TextInput label="Why" required maxLength={1000} value={reason} onChange={(event) => setReason(event.currentTarget.value)} />
            <TextInput label="Name of the person who asks for this" maxLength={200} value={by} onChange={(event) => setBy(event.currentTarget.value)} />
          </Group>
          {action.isError && <ProblemMessage error={action.error} />}
          <Group justify="flex-end">
            <Text size="xs" c="dimmed">
              Only groups in which the two files differ are recomputed.
            </Text>
            <Button variant="default" onClick={onClose}>
              Cancel
            </Button>
            <Button type="submit" loading={action.isPending} disabled={preview.data === undefined || !asked || reason.trim() === ""}>
              {how === "replace" ? "Replace" : "Take back"}
            </Button>
          </Group>
          <CliHint
            words={
              how === "replace"
                ? ["cbp", "replace", dataflow, source, file, right?.name ?? "FILE", "--dry-run"]
                : ["cbp", "retract", dataflow, source, file, "--dry-run"]
            }
          />
        </Stack>
      </form>
    </Modal>
  );
}

/** Tell whether stages are all that hinders a correction. */
function isUnfollowed(error: unknown): boolean {
  if (!(error instanceof ProblemError) || error.code !== "replace_refused") return false;
  const readers = Object.keys((error.problem.details.stages ?? {}) as object);
  return readers.length > 0 && readers.every((one) => one.startsWith("stages."));
}
