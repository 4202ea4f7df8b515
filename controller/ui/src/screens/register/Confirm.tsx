import { Button, Checkbox, Group, Modal, Stack, Text } from "@mantine/core";
import { useState } from "react";

import { client } from "@/api/client";
import { useAction, useApi } from "@/api/hooks";
import { ProblemMessage } from "@/components/ProblemMessage";
import { formatCounted } from "@/format/format";
import { Sentences } from "@/screens/register/ChangePlan";
import { losses } from "@/screens/register/planning";
import {
  asYaml,
  choiceQuery,
  type Change,
  type Choice,
  type Validation,
} from "@/screens/register/useDocument";

interface ConfirmProps {
  text: string;
  valid: Validation;
  plan: Change | undefined;
  choice: Choice;
  registered: number | undefined;
  onClose: () => void;
  onDone: () => void;
}

/** The last question before a document takes effect: what begins, and what is lost. */
export function Confirm({ text, valid, plan, choice, registered, onClose, onDone }: ConfirmProps) {
  const [known, setKnown] = useState(false);
  const use = useApi(
    ["disk", valid.name],
    () => client.GET("/api/v1/dataflows/{name}/disk", { params: { path: { name: valid.name } } }),
    { enabled: registered !== undefined, follow: false },
  );
  const lost = plan === undefined ? [] : losses(plan, use.data?.items ?? []);
  const register = useAction<unknown>(() => client.POST("/api/v1/dataflows", asYaml(text)), {
    done: `${valid.name} is registered`,
    onDone,
    notify: false,
  });
  const change = useAction<unknown>(
    () =>
      client.PUT("/api/v1/dataflows/{name}", {
        params: {
          path: { name: valid.name },
          query: { ...choiceQuery(choice), expected_version: registered },
        },
        ...asYaml(text),
      }),
    { done: `${valid.name} is at version ${plan?.version ?? ""}`, onDone, notify: false },
  );
  const action = registered === undefined ? register : change;
  const title =
    registered === undefined
      ? `Register ${valid.name}`
      : `Change ${valid.name} to version ${plan?.version ?? registered + 1}`;
  return (
    <Modal opened onClose={onClose} title={title} size="lg">
      <Stack gap="sm">
        {registered === undefined ? (
          <Text size="sm">
            This creates {formatCounted(valid.sources.length, "source")} and{" "}
            {formatCounted(valid.stages.length, "stage")}, without records. Each source gets a drop
            folder; files that you put there are processed at once.
          </Text>
        ) : (
          <Text size="sm">
            Runs under way end first; then version {plan?.version} replaces the present one in one
            step. Other dataflows continue.
          </Text>
        )}
        <Sentences title="What is lost" lines={lost}>
          <Checkbox
            mt="sm"
            label="I accept this loss"
            checked={known}
            onChange={(event) => setKnown(event.currentTarget.checked)}
          />
        </Sentences>
        <Sentences title="What readers see meanwhile" lines={plan?.meanwhile ?? []} />
        {action.isError && <ProblemMessage error={action.error} />}
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Button
            loading={action.isPending}
            disabled={lost.length > 0 && !known}
            onClick={() => action.mutate()}
          >
            {registered === undefined ? "Register" : "Change"}
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}
