import { Badge, Button, Code, Group, Stack, Table, Text, TextInput, Title } from "@mantine/core";
import { useState } from "react";

import { authorization, ask } from "@/api/transport";
import { CodeBlock } from "@/components/CodeBlock";
import {
  addressOf,
  curlOf,
  fieldsOf,
  isComplete,
  typeText,
  type Document,
  type Operation,
} from "@/screens/api/operations";

const SHOWN_CHARACTERS_MAX = 20_000;

/** One route, opened. */
export function OperationPanel({ operation, document }: { operation: Operation; document: Document }) {
  const [values, setValues] = useState<Record<string, string>>({});
  const asked = operation.parameters.filter((one) => one.in === "path" || one.in === "query");
  const good = operation.answers.find(({ status }) => status.startsWith("2"));
  return (
    <Stack gap="sm">
      {operation.more !== "" && <Text style={{ whiteSpace: "pre-line" }}>{operation.more}</Text>}
      <Text size="sm" c="dimmed">
        {operation.scope === "" ? "Needs no credential." : `Needs the scope ${operation.scope}.`}
      </Text>
      {asked.length > 0 && (
        <Stack gap="xs">
          <Title order={4} size="h6">Parameters</Title>
          {asked.map((one) => (
            <TextInput
              key={one.name}
              label={one.name}
              description={[typeText(one.schema), one.description].filter(Boolean).join("; ")}
              required={one.required === true}
              placeholder={one.example}
              value={values[one.name] ?? ""}
              onChange={(event) => {
                const { value } = event.currentTarget;
                setValues((before) => ({ ...before, [one.name]: value }));
              }}
              maw={480}
            />
          ))}
        </Stack>
      )}
      <Fields title="Body" type={operation.bodyType} fields={fieldsOf(operation.bodySchema, document)} />
      <Fields title="Answer" type={typeText(good?.schema)} fields={fieldsOf(good?.schema, document)} />
      <Group gap={6}>
        {operation.answers.map(({ status, description }) => (
          <Badge key={status} variant="default" radius="sm" tt="none">{`${status} ${description}`}</Badge>
        ))}
      </Group>
      <CodeBlock label="The same request in a shell" text={curlOf(operation, window.location.origin, values)} />
      {operation.method === "GET" && !operation.streams && <Try operation={operation} values={values} />}
    </Stack>
  );
}

function Fields({ title, type, fields }: { title: string; type: string; fields: ReturnType<typeof fieldsOf> }) {
  if (type === "") return null;
  return (
    <div>
      <Title order={4} size="h6">{`${title}: ${type}`}</Title>
      {fields.length > 0 && (
        <div style={{ overflowX: "auto" }} tabIndex={0} role="region" aria-label={`Fields of ${title}`}>
          <Table miw={480} verticalSpacing={4}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>Field</Table.Th>
                <Table.Th>Type</Table.Th>
                <Table.Th>Meaning</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {fields.map((field) => (
                <Table.Tr key={field.name}>
                  <Table.Td><Code>{field.name}</Code></Table.Td>
                  <Table.Td>{field.required ? field.type : `${field.type} (optional)`}</Table.Td>
                  <Table.Td>{field.description}</Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </div>
      )}
    </div>
  );
}

/** Sends a request that only reads, as the one who is signed in, and shows what comes. */
function Try({ operation, values }: { operation: Operation; values: Record<string, string> }) {
  const [answer, setAnswer] = useState<{ status: string; text: string } | null>(null);
  const [pending, setPending] = useState(false);
  const send = async () => {
    setPending(true);
    try {
      const response = await ask(addressOf(operation, values), { headers: authorization() });
      setAnswer({ status: `${response.status} ${response.statusText}`.trim(), text: shown(await response.text()) });
    } catch (error) {
      setAnswer({ status: "No answer", text: String(error) });
    } finally {
      setPending(false);
    }
  };
  return (
    <Stack gap="xs" align="flex-start">
      <Button size="xs" loading={pending} disabled={!isComplete(operation, values)} onClick={() => void send()}>
        Send
      </Button>
      {answer !== null && (
        <Stack gap={4} w="100%" aria-live="polite">
          <Text size="sm" fw={600}>{answer.status}</Text>
          <CodeBlock label="Answer" text={answer.text} height={480} />
        </Stack>
      )}
    </Stack>
  );
}

function shown(text: string): string {
  let whole = text;
  try {
    whole = JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    // Not JSON: as it is.
  }
  return whole.length > SHOWN_CHARACTERS_MAX ? `${whole.slice(0, SHOWN_CHARACTERS_MAX)}\n...` : whole;
}
