import { Alert, Anchor, Button, Code, Group, Text } from "@mantine/core";
import { useLocation } from "react-router";

import { problemOf, UNREACHABLE } from "@/api/problem";
import { Icon } from "@/components/Icon";
import { leaderLink } from "@/format/leaderLink";

/** The code of what another instance does. */
const LED_ELSEWHERE = "led_elsewhere";

/** An error as the service reports it: what happened, its stable code, what to do. */
export function ProblemMessage({ error, retry }: { error: unknown; retry?: () => void }) {
  const { pathname, search } = useLocation();
  const problem = problemOf(error);
  const details = Object.entries(problem.details);
  // The notice over the screen says it at length, once.
  if (problem.error_code === UNREACHABLE) {
    return (
      <Text size="sm" c="dimmed">
        No answer from the service.
      </Text>
    );
  }
  if (problem.error_code === LED_ELSEWHERE) {
    const leader = String(problem.details["leader"] ?? "");
    const link = leaderLink(leader, `${pathname}${search}`);
    return (
      <Text size="sm" c="dimmed">
        Only the leading instance can answer this: {link === null ? leader : <Anchor href={link}>{leader}</Anchor>}.
      </Text>
    );
  }
  return (
    <Alert
      role="alert"
      color="red"
      variant="light"
      icon={<Icon name="alert" />}
      title={problem.title}
      styles={{ message: { color: "var(--mantine-color-text)" } }}
    >
      <Text size="sm" style={{ overflowWrap: "anywhere", whiteSpace: "pre-wrap" }}>
        {problem.message}
      </Text>
      <Group gap="xs" mt="xs">
        <Code>{problem.error_code}</Code>
        {problem.status > 0 && (
          <Text size="xs" c="dimmed">
            HTTP {problem.status}
          </Text>
        )}
        {retry !== undefined && (
          <Button size="compact-xs" variant="default" onClick={retry}>
            Try again
          </Button>
        )}
      </Group>
      {details.length > 0 && (
        <details>
          <summary>
            <Text span size="xs">
              Details
            </Text>
          </summary>
          <Code block>{JSON.stringify(problem.details, null, 2)}</Code>
        </details>
      )}
    </Alert>
  );
}
