import { Alert, Code, Text } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef } from "react";

import { useLost } from "@/api/reachable";
import { RelativeTime } from "@/components/RelativeTime";
import { Icon } from "@/components/Icon";
import { useNow } from "@/hooks/useNow";

/** One request that is lost says little: the next one may be answered. */
const PATIENCE_MILLISECONDS = 1_000;

/** Says over every screen that the service does not answer, and from when what is shown is; asks for all once it does. */
export function LostNotice() {
  const lost = useLost();
  const now = useNow();
  const queries = useQueryClient();
  const wasLost = useRef(false);
  useEffect(() => {
    if (lost === null && wasLost.current) void queries.invalidateQueries();
    wasLost.current = lost !== null;
  }, [lost, queries]);
  if (lost === null || now.getTime() - lost.since.getTime() < PATIENCE_MILLISECONDS) return null;
  return (
    <Alert
      role="alert"
      color="red"
      variant="light"
      icon={<Icon name="alert" />}
      title="The service does not answer"
      mb="md"
      styles={{ message: { color: "var(--mantine-color-text)" } }}
    >
      <Text size="sm" mb="xs">
        Its last answer came <RelativeTime at={lost.lastAnswer.toISOString()} />; the data below is not newer, and may
        be outdated. The page retries every 2 seconds, and continues automatically. Is <Code>cbp serve</Code> running?
      </Text>
      <Code>service_unreachable</Code>
    </Alert>
  );
}
