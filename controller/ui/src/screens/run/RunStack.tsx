import { Button, Stack, Text } from "@mantine/core";

import { client } from "@/api/client";
import { useAction } from "@/api/hooks";
import { CliHint } from "@/components/CliHint";
import { CodeBlock } from "@/components/CodeBlock";
import { ProblemMessage } from "@/components/ProblemMessage";
import { Section } from "@/components/Section";
import { stackLines } from "@/screens/run/stackLines";

const HEIGHT = 320;

/** In which lines of code a run is now, when somebody asks: for one that takes longer than expected. */
export function RunStack({ run }: { run: string }) {
  const stack = useAction(() => client.GET("/api/v1/runs/{run}/stack", { params: { path: { run } } }), {
    changes: [],
    notify: false,
  });
  return (
    <Section
      title="Where it is now"
      lead="The lines of code that the run's worker processes are executing, without values. The run continues."
    >
      <Stack gap="xs" align="flex-start">
        <Button variant="default" size="xs" loading={stack.isPending} onClick={() => stack.mutate()}>
          Show the stack
        </Button>
        {stack.isError && <ProblemMessage error={stack.error} />}
        {stack.data?.processes.length === 0 && (
          <Text size="sm">
            {stack.data.status === "INTENDED" ? "No worker process executes the run now." : "The run has ended."}
          </Text>
        )}
        {stack.data?.processes.map((process) => (
          <CodeBlock
            key={process.pid}
            label={`Calls of process ${process.pid}`}
            text={stackLines(process)}
            height={HEIGHT}
          />
        ))}
        <CliHint words={["cbp", "stack", run]} />
      </Stack>
    </Section>
  );
}
