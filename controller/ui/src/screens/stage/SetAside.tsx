import { Anchor, Button, Group, Text, TextInput } from "@mantine/core";
import { useState } from "react";

import { client } from "@/api/client";
import { useAction } from "@/api/hooks";
import type { components } from "@/api/schema";
import { useSession } from "@/api/session";
import { CliHint } from "@/components/CliHint";
import { Section } from "@/components/Section";
import { formatCounted } from "@/format/format";

interface SetAsideProps {
  dataflow: string;
  stage: string;
  aside: components["schemas"]["SetAsideBrief"];
}

/** The records on which the stage's code fails: how many, the newest error, and what gives them back. */
export function SetAside({ dataflow, stage, aside }: SetAsideProps) {
  const { can } = useSession();
  const path = { name: dataflow, stage };
  const [reason, setReason] = useState("");
  const attempt = useAction(
    () => client.POST("/api/v1/dataflows/{name}/stages/{stage}/give-back/preview", { params: { path } }),
    { done: (answer) => said(answer, "would be applied", "would fail again") },
  );
  const give = useAction(
    () => client.POST("/api/v1/dataflows/{name}/stages/{stage}/give-back", { params: { path, query: { reason } } }),
    { done: (answer) => said(answer, "applied", "failed again") },
  );
  const from = aside.file === null ? "" : ` (${aside.file}${aside.line === null ? "" : `, line ${aside.line}`})`;
  return (
    <Section title="Set aside" lead={`${formatCounted(aside.records, "record")} on which its code fails, and what came behind them.`}>
      <Text size="sm" style={{ overflowWrap: "anywhere" }}>
        Newest error{from}: {aside.message}
      </Text>
      <Anchor href={`/api/v1/dataflows/${dataflow}/stages/${stage}/set-aside`} size="sm">
        all of them, as JSON
      </Anchor>
      {can("operator") && (
        <Group gap="sm" align="end">
          <Button variant="default" loading={attempt.isPending} onClick={() => attempt.mutate()}>
            Try again, and change nothing
          </Button>
          {can("admin") && (
            <>
              <TextInput
                label="Reason"
                maxLength={1000}
                value={reason}
                onChange={(event) => setReason(event.currentTarget.value)}
                description="Kept for good"
              />
              <Button disabled={reason.trim() === ""} loading={give.isPending} onClick={() => give.mutate()}>
                Give back
              </Button>
            </>
          )}
        </Group>
      )}
      <CliHint words={["cbp", "set-aside", dataflow, stage]} />
    </Section>
  );
}

function said(answer: components["schemas"]["GivenBackOut"], done: string, left: string): string {
  const failed = answer.left > 0 ? `, ${formatCounted(answer.left, "record")} ${left}` : "";
  return `${formatCounted(answer.records, "record")} ${done}${failed}`;
}
