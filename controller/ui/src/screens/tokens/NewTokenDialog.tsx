import { Button, Checkbox, Group, Modal, MultiSelect, NativeSelect, NumberInput, Stack, TextInput } from "@mantine/core";
import { useState, type FormEvent } from "react";

import { client } from "@/api/client";
import { useAction, useApi } from "@/api/hooks";
import { SCOPES, type Scope } from "@/api/session";
import { ProblemMessage } from "@/components/ProblemMessage";
import type { Made } from "@/screens/tokens/SecretDialog";

const WORDS: Record<Scope, string> = {
  viewer: "viewer: reads",
  operator: "operator: also keeps dataflows running",
  admin: "admin: everything",
};

/** Asks what a new token may do, and makes it. */
export function NewTokenDialog({
  onClose,
  onMade,
}: {
  onClose: () => void;
  onMade: (made: Made) => void;
}) {
  const [name, setName] = useState("");
  const [scope, setScope] = useState<Scope>("viewer");
  const [days, setDays] = useState<number | string>(90);
  const [endless, setEndless] = useState(false);
  const [limits, setLimits] = useState<string[]>([]);
  const dataflows = useApi(["dataflows"], () => client.GET("/api/v1/dataflows"), { follow: false });
  const create = useAction(
    () =>
      client.POST("/api/v1/tokens", {
        body: {
          name: name.trim(),
          scope,
          expires_days: endless ? null : Number(days),
          dataflows: limits.length === 0 ? null : limits,
        },
      }),
    { notify: false, onDone: onMade, changes: [["tokens"]] },
  );

  function submit(event: FormEvent) {
    event.preventDefault();
    create.mutate();
  }

  return (
    <Modal opened onClose={onClose} title="New token" closeButtonProps={{ "aria-label": "Close" }}>
      <form onSubmit={submit} aria-label="New token">
        <Stack>
          <TextInput
            label="Name"
            description="Shown in the audit log. Use lower-case letters, digits, dots and hyphens. A name cannot be used again."
            required
            maxLength={63}
            pattern="[a-z0-9][a-z0-9.\-]*"
            data-autofocus
            value={name}
            onChange={(event) => setName(event.currentTarget.value)}
          />
          <NativeSelect
            label="May"
            data={SCOPES.map((one) => ({ value: one, label: WORDS[one] }))}
            value={scope}
            onChange={(event) => setScope(event.currentTarget.value as Scope)}
          />
          <NumberInput
            label="Valid for, in days"
            min={1}
            max={3660}
            allowDecimal={false}
            required={!endless}
            disabled={endless}
            value={days}
            onChange={setDays}
          />
          <Checkbox
            label="Until it is revoked"
            checked={endless}
            onChange={(event) => setEndless(event.currentTarget.checked)}
          />
          <MultiSelect
            label="Only these dataflows"
            description="If you choose none, the token can use all dataflows. A limited token is for programs, and cannot sign in here."
            data={(dataflows.data?.items ?? []).map((one) => one.name)}
            value={limits}
            onChange={setLimits}
            searchable
            clearable
          />
          {create.isError && <ProblemMessage error={create.error} />}
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>
              Cancel
            </Button>
            <Button type="submit" loading={create.isPending}>
              Make it
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
