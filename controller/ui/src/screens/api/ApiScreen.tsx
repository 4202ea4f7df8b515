import { Accordion, Badge, Code, Group, Stack, Text, TextInput } from "@mantine/core";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import { Asked } from "@/components/Asked";
import { EmptyState } from "@/components/EmptyState";
import { Page } from "@/components/Page";
import { Section } from "@/components/Section";
import { useUrlState } from "@/hooks/urlState";
import { byTag, matching, operationsOf, type Document, type Operation } from "@/screens/api/operations";
import { OperationPanel } from "@/screens/api/OperationPanel";

/** The service's own description of itself is no route of its own document. */
const ask = client.GET as unknown as (path: string) => Promise<{ data?: Document; error?: unknown; response: Response }>;

/** Every route of REST: what it takes and gives, a call for a shell, and, if it only reads, a try. */
export default function ApiScreen() {
  const document = useApi(["openapi"], () => ask("/api/v1/openapi.json"), { follow: false });
  const [text, setText] = useUrlState("find");
  const [open, setOpen] = useUrlState("route");
  return (
    <Page
      title="REST API"
      lead="Every route of this service, from its own OpenAPI document (/api/v1/openapi.json). Nothing is loaded from elsewhere."
    >
      <TextInput
        label="Find"
        placeholder="Words of a path or a description"
        value={text}
        onChange={(event) => setText(event.currentTarget.value)}
        maw={480}
      />
      <Asked query={document} rows={8}>
        {(answer) => {
          const shown = matching(operationsOf(answer), text);
          if (shown.length === 0) {
            return <EmptyState icon="search" title="No route contains these words">Search for fewer words.</EmptyState>;
          }
          return (
            <Stack gap="xl">
              {byTag(shown).map(([tag, operations]) => (
                <Section key={tag} title={tag}>
                  <Accordion
                    variant="separated"
                    transitionDuration={0}
                    order={3}
                    value={open}
                    onChange={(value) => setOpen(value ?? "")}
                  >
                    {operations.map((operation) => (
                      <Accordion.Item key={operation.id} value={operation.id}>
                        <Accordion.Control>
                          <Summary operation={operation} />
                        </Accordion.Control>
                        <Accordion.Panel>
                          {open === operation.id && (
                            <OperationPanel operation={operation} document={answer} />
                          )}
                        </Accordion.Panel>
                      </Accordion.Item>
                    ))}
                  </Accordion>
                </Section>
              ))}
            </Stack>
          );
        }}
      </Asked>
    </Page>
  );
}

function Summary({ operation }: { operation: Operation }) {
  return (
    <Group gap="sm" wrap="nowrap" align="flex-start">
      <Badge
        variant="light"
        color={operation.method === "GET" ? "blue" : "orange"}
        radius="sm"
        miw={72}
        styles={{ label: { color: "var(--mantine-color-text)" } }}
      >
        {operation.method}
      </Badge>
      <div style={{ minWidth: 0 }}>
        <Code style={{ overflowWrap: "anywhere" }}>{operation.path}</Code>
        <Text size="sm">{operation.summary}</Text>
      </div>
    </Group>
  );
}
