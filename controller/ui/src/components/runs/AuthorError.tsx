import { Alert, Anchor, Box, Code, Group, Stack, Table, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { Link } from "react-router";

import { factsOf, nextScreens, nextStep } from "@/components/runs/errorFacts";
import { Icon } from "@/components/Icon";

/** An error of a run or a stage: what happened, in which line of whose code, with what, what to do. */
export function AuthorError({
  error,
  dataflow,
  run,
  actions,
}: {
  error: Record<string, unknown>;
  dataflow: string;
  /** The run that it ended; shown as a link. */
  run?: string | null;
  actions?: ReactNode;
}) {
  const code = String(error["error_code"] ?? "unexpected");
  const facts = factsOf(error);
  const cause = facts.find((fact) => fact.name === "Cause")?.value;
  const title = cause ?? String(error["message"] ?? code);
  // The message of an author's error is put together from these facts, so it would say them twice.
  const rest = facts.filter((fact) => fact.name !== "Cause");
  const isSaid = cause !== undefined && rest.some((fact) => fact.name === "Line");
  return (
    <Box component="section" aria-label="Error">
    <Alert
      role="note"
      color="red"
      variant="light"
      icon={<Icon name="alert" />}
      title={title}
      styles={{ message: { color: "var(--mantine-color-text)" }, title: { overflowWrap: "anywhere" } }}
    >
      <Stack gap="xs">
        {!isSaid && title !== error["message"] && (
          <Text size="sm" style={{ overflowWrap: "anywhere", whiteSpace: "pre-wrap" }}>
            {String(error["message"] ?? "")}
          </Text>
        )}
        {rest.length > 0 && (
          <Table verticalSpacing={2} withRowBorders={false} aria-label="Facts of the error" maw={900}>
            <Table.Tbody>
              {rest.map((fact) => (
                <Table.Tr key={fact.name}>
                  <Table.Th scope="row" w={120} fw={600} style={{ verticalAlign: "top" }}>
                    {fact.name}
                  </Table.Th>
                  <Table.Td>
                    <Code style={{ overflowWrap: "anywhere", whiteSpace: "pre-wrap" }}>{fact.value}</Code>
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        )}
        <Text size="sm">{nextStep(code)}</Text>
        <Group gap="xs">
          <Code>{code}</Code>
          {run !== undefined && run !== null && (
            <Anchor component={Link} to={`/runs/${run}`} size="sm">
              Run {run}
            </Anchor>
          )}
          {nextScreens(code).map(({ path, words }) => (
            <Anchor key={path} component={Link} to={`/dataflows/${dataflow}/${path}`} size="sm">
              {words}
            </Anchor>
          ))}
          {actions}
        </Group>
      </Stack>
    </Alert>
    </Box>
  );
}
