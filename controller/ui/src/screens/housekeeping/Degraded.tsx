import { Stack, Text } from "@mantine/core";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import { Asked } from "@/components/Asked";
import { CliHint } from "@/components/CliHint";
import { Nothing } from "@/components/Nothing";
import { Notice } from "@/components/Notice";
import { Section } from "@/components/Section";
import { remedy } from "@/screens/housekeeping/words";

/** Damage is found without an event. */
const EVERY_MILLISECONDS = 5_000;

/** What makes no progress, and the command that repairs it. */
export function Degraded({ dataflow }: { dataflow: string }) {
  const degraded = useApi(["degraded"], () => client.GET("/api/v1/degraded"), {
    every: () => EVERY_MILLISECONDS,
  });
  return (
    <Section title="Degraded">
      <Asked query={degraded} rows={1}>
        {(page) => {
          const one = page.items.find((item) => item.dataflow === dataflow);
          if (one === undefined) return <Nothing>Nothing is degraded.</Nothing>;
          return (
            <Notice
              tone={one.state === "retrying" ? "warn" : "bad"}
              title={`${dataflow} is ${one.state}`}
            >
              <Stack gap="xs">
                <Text size="sm" style={{ overflowWrap: "anywhere" }}>
                  {one.reason}
                </Text>
                <CliHint words={remedy(one.state, one.reason, dataflow)} />
              </Stack>
            </Notice>
          );
        }}
      </Asked>
    </Section>
  );
}
