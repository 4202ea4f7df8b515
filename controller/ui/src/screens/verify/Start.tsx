import { Button, Checkbox, Group, NativeSelect, NumberInput, Paper } from "@mantine/core";
import { useState } from "react";

import { client } from "@/api/client";
import { useAction } from "@/api/hooks";
import { Icon } from "@/components/Icon";
import { Section } from "@/components/Section";

type Split = "increments" | "at_once";
type Engine = "direct" | "reference";

interface StartProps {
  dataflow: string;
  /** One is under way; a service does one at a time. */
  disabled: boolean;
  onStarted: (verification: string) => void;
}

/** How to verify, and the button that begins. */
export function Start({ dataflow, disabled, onStarted }: StartProps) {
  const [split, setSplit] = useState<Split>("increments");
  const [engine, setEngine] = useState<Engine>("direct");
  const [twice, setTwice] = useState(false);
  const [minutes, setMinutes] = useState(10);
  const start = useAction(
    () =>
      client.POST("/api/v1/dataflows/{name}/verifications", {
        params: { path: { name: dataflow } },
        body: { split, engine, twice, seconds_max: minutes * 60 },
      }),
    { done: "The verification has begun", onDone: (answer) => onStarted(answer.id) },
  );
  return (
    <Section title="Start">
      <Paper withBorder p="md" radius="md">
        <Group align="flex-end" gap="md">
          <NativeSelect
            label="Input"
            value={split}
            onChange={(event) => setSplit(event.currentTarget.value as Split)}
            data={[
              { value: "increments", label: "increment by increment" },
              { value: "at_once", label: "all at once" },
            ]}
          />
          <NativeSelect
            label="Engine"
            value={engine}
            onChange={(event) => setEngine(event.currentTarget.value as Engine)}
            data={[
              { value: "direct", label: "the service's own" },
              { value: "reference", label: "the reference (slow)" },
            ]}
          />
          <NumberInput
            label="Time limit in minutes"
            min={1}
            max={10_080}
            clampBehavior="strict"
            allowDecimal={false}
            value={minutes}
            onChange={(value) => setMinutes(typeof value === "number" ? value : 10)}
            w={190}
          />
          <Checkbox
            label="Recompute twice"
            checked={twice}
            onChange={(event) => setTwice(event.currentTarget.checked)}
            mb={8}
          />
          <Button
            leftSection={<Icon name="play" />}
            loading={start.isPending}
            disabled={disabled}
            onClick={() => start.mutate()}
          >
            Verify
          </Button>
        </Group>
      </Paper>
    </Section>
  );
}
