import { Badge, Group, ScrollArea, Stack, Text } from "@mantine/core";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import { Asked } from "@/components/Asked";
import { CliHint } from "@/components/CliHint";
import { Nothing } from "@/components/Nothing";
import { Section } from "@/components/Section";
import { formatAbsolute } from "@/format/format";
import { lineOf, type LogLine } from "@/screens/run/logLine";

const LINES = 200;
const HEIGHT = 320;
const COLORS: Record<string, string> = { warning: "orange", error: "red", critical: "red" };

/** The last lines that a run logged, those of the author's code among them. */
export function RunLog({ run, running }: { run: string; running: boolean }) {
  const log = useApi(
    ["runs", run, "log", running],
    () =>
      client.GET("/api/v1/runs/{run}/log", {
        params: { path: { run }, query: { limit: LINES } },
      }),
    { follow: running, keepPrevious: true },
  );
  return (
    <Section title="Log" lead={`The last ${LINES} lines; log lines are kept for some days.`}>
      <Asked query={log}>
        {(page) =>
          page.items.length === 0 ? (
            <Nothing>This instance keeps no log lines of this run.</Nothing>
          ) : (
            <ScrollArea.Autosize mah={HEIGHT} type="auto" viewportProps={{ tabIndex: 0 }}>
              <Stack gap={2} component="ol" p={0} m={0} aria-label="Lines of the log">
                {page.items.map((line, at) => (
                  <Line key={at} line={line} />
                ))}
              </Stack>
            </ScrollArea.Autosize>
          )
        }
      </Asked>
      <CliHint words={["cbp", "logs", run]} />
    </Section>
  );
}

function Line({ line }: { line: LogLine }) {
  const { event, fields } = lineOf(line);
  return (
    <Group component="li" gap="xs" wrap="nowrap" align="flex-start" style={{ listStyle: "none" }}>
      <Text size="xs" c="dimmed" className="numeric" style={{ whiteSpace: "nowrap" }}>
        {line.time === null ? "" : formatAbsolute(line.time)}
      </Text>
      <Badge
        size="xs"
        radius="sm"
        variant="light"
        tt="none"
        color={COLORS[line.level] ?? "gray"}
        styles={{ root: { flexShrink: 0 }, label: { color: "var(--mantine-color-text)" } }}
      >
        {line.level}
      </Badge>
      <Text size="xs" ff="monospace" style={{ overflowWrap: "anywhere" }}>
        <strong>{event}</strong> {fields}
      </Text>
    </Group>
  );
}
