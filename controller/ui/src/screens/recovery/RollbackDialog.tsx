import { Button, Checkbox, Group, List, Modal, Stack, Text, TextInput } from "@mantine/core";
import type { UseMutationResult } from "@tanstack/react-query";
import { useState } from "react";

import { client } from "@/api/client";
import { useAction, useApi } from "@/api/hooks";
import { stepInWords } from "@/api/jobs";
import type { ProblemError } from "@/api/problem";
import type { components } from "@/api/schema";
import { Asked } from "@/components/Asked";
import { CliHint } from "@/components/CliHint";
import { DataTable, type Column } from "@/components/DataTable";
import { Notice } from "@/components/Notice";
import { ProblemMessage } from "@/components/ProblemMessage";
import { formatBytes, formatCount } from "@/format/format";
import { rollBack, type RollbackJob } from "@/screens/recovery/rollbackJob";
import { UndoneFiles } from "@/screens/recovery/UndoneFiles";
import { undoneInWords } from "@/screens/recovery/words";

type Plan = components["schemas"]["RollbackPlanOut"];
type Rewind = components["schemas"]["TableRewindOut"];

const COLUMNS: readonly Column<Rewind>[] = [
  { id: "table", header: "Table", render: (row) => row.table },
  { id: "now", header: "Records now", align: "right", render: (row) => formatCount(row.records_now) },
  { id: "then", header: "Records then", align: "right", render: (row) => formatCount(row.records_then) },
  { id: "bytes-now", header: "Size now", align: "right", render: (row) => formatBytes(row.bytes_now) },
  { id: "bytes-then", header: "Size then", align: "right", render: (row) => formatBytes(row.bytes_then) },
];

interface RollbackDialogProps {
  dataflow: string;
  /** Position, or anything else that the service takes as a target. */
  to: string;
  allowed: boolean;
  onClose: () => void;
}

/** What a roll-back undoes; then who asks for it and why, and the name of the dataflow typed. */
export function RollbackDialog({ dataflow, to, allowed, onClose }: RollbackDialogProps) {
  const [dropLater, setDropLater] = useState(false);
  const [job, setJob] = useState<RollbackJob>();
  const action = useAction(
    (given: Given) => rollBack(dataflow, { to, drop_later: dropLater, ...given }, setJob),
    { done: `${dataflow} is back at position ${to}`, onDone: onClose, notify: false },
  );
  const plan = useApi(
    ["rollback-plan", dataflow, to, dropLater],
    () =>
      client.GET("/api/v1/dataflows/{name}/rollback", {
        params: { path: { name: dataflow }, query: { to, drop_later: dropLater } },
      }),
    // What is done cannot be planned again.
    { enabled: !action.isPending && !action.isSuccess, keepPrevious: true },
  );
  return (
    <Modal opened onClose={onClose} size="xl" title={`Roll-back of ${dataflow} to position ${to}`}>
      <Stack gap="md">
        <Asked query={plan}>
          {(answer) => (
            <>
              <Preview plan={answer} />
              <UndoneFiles
                key={`${to} ${dropLater}`}
                dataflow={dataflow}
                to={to}
                dropLater={dropLater}
                files={answer.files}
                total={answer.files_total}
                next={answer.files_cursor}
              />
            </>
          )}
        </Asked>
        {!allowed && (
          <Text size="sm" c="dimmed">
            Rolling back needs the scope admin.
          </Text>
        )}
        {allowed && plan.data !== undefined && (
          <Confirmation
            dataflow={dataflow}
            dropLater={dropLater}
            setDropLater={setDropLater}
            action={action}
            job={job}
            onClose={onClose}
          />
        )}
        <CliHint words={["cbp", "rollback", dataflow, "--to", to, "--dry-run"]} />
      </Stack>
    </Modal>
  );
}

function Preview({ plan }: { plan: Plan }) {
  return (
    <Stack gap="sm">
      <Notice tone="warn" title="Effects of the roll-back">
        <List size="sm">
          {undoneInWords(plan).map((line) => (
            <List.Item key={line}>{line}</List.Item>
          ))}
        </List>
      </Notice>
      <DataTable
        label="Tables before and after the roll-back"
        columns={COLUMNS}
        rows={plan.tables}
        rowKey={(row) => row.table}
        sortName="rewind-sort"
        minWidth={520}
      />
    </Stack>
  );
}

interface Given {
  reason: string;
  by: string;
  pause: boolean;
}

interface ConfirmationProps {
  dataflow: string;
  dropLater: boolean;
  setDropLater: (dropLater: boolean) => void;
  action: UseMutationResult<RollbackJob, ProblemError, Given>;
  job: RollbackJob | undefined;
  onClose: () => void;
}

function Confirmation({ dataflow, dropLater, setDropLater, action, job, onClose }: ConfirmationProps) {
  const [by, setBy] = useState("");
  const [reason, setReason] = useState("");
  const [typed, setTyped] = useState("");
  const [pause, setPause] = useState(false);
  return (
    <form
      aria-label="Confirm the roll-back"
      onSubmit={(event) => {
        event.preventDefault();
        action.mutate({ reason, by, pause });
      }}
    >
      <Stack gap="sm">
        <Checkbox
          label="Drop later increments"
          description="Increments that arrived after that moment are not applied again."
          checked={dropLater}
          onChange={(event) => setDropLater(event.currentTarget.checked)}
        />
        <Checkbox
          label="Leave the dataflow paused"
          description="No run starts until you resume the dataflow."
          checked={pause}
          onChange={(event) => setPause(event.currentTarget.checked)}
        />
        <Group grow align="flex-start">
          <TextInput
            label="Why"
            required
            maxLength={1000}
            value={reason}
            onChange={(event) => setReason(event.currentTarget.value)}
          />
          <TextInput
            label="Name of the person who asks for this"
            maxLength={200}
            value={by}
            onChange={(event) => setBy(event.currentTarget.value)}
          />
        </Group>
        <TextInput
          label={`Type the name ${dataflow} to confirm`}
          autoComplete="off"
          value={typed}
          onChange={(event) => setTyped(event.currentTarget.value)}
        />
        {action.isError && <ProblemMessage error={action.error} />}
        {action.isPending && job !== undefined && (
          <Text size="sm" role="status">
            {stepInWords(job)}
          </Text>
        )}
        <Group justify="flex-end">
          <Text size="xs" c="dimmed">
            The roll-back and its reason are stored permanently. A roll-back cannot be undone.
          </Text>
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Button
            type="submit"
            color="red"
            loading={action.isPending}
            disabled={typed !== dataflow || reason.trim() === ""}
          >
            Roll back
          </Button>
        </Group>
      </Stack>
    </form>
  );
}
