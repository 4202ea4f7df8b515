import { Accordion, Button, Code, Group, Stack, Text } from "@mantine/core";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import type { components } from "@/api/schema";
import { Asked } from "@/components/Asked";
import { CliHint } from "@/components/CliHint";
import { Nothing } from "@/components/Nothing";

type Translator = components["schemas"]["TranslatorOut"];
type Port = components["schemas"]["PortOut"];

/** The translators that a document may name, with what they read, write and keep. */
export function Library({ onInsert }: { onInsert: (translator: Translator) => void }) {
  const translators = useApi(["translators"], () => client.GET("/api/v1/translators"), {
    follow: false,
  });
  return (
    <Stack gap="sm">
      <Asked query={translators}>
        {(page) =>
          page.items.length === 0 ? (
            <Nothing>No allowed package offers a translator.</Nothing>
          ) : (
            <Accordion variant="separated" chevronPosition="left">
              {page.items.map((one) => (
                <Accordion.Item key={one.name} value={one.name}>
                  <Accordion.Control>
                    <Text span fw={600}>
                      {one.name}
                    </Text>{" "}
                    <Text span size="sm" c="dimmed">
                      {one.summary}
                    </Text>
                  </Accordion.Control>
                  <Accordion.Panel>
                    <OneTranslator translator={one} onInsert={onInsert} />
                  </Accordion.Panel>
                </Accordion.Item>
              ))}
            </Accordion>
          )
        }
      </Asked>
      <CliHint words={["cbp", "translators"]} />
    </Stack>
  );
}

function OneTranslator({
  translator,
  onInsert,
}: {
  translator: Translator;
  onInsert: (translator: Translator) => void;
}) {
  const { ports, parameters, problem } = translator;
  return (
    <Stack gap="xs">
      {problem !== null && (
        <Text size="sm" role="alert">
          Cannot be loaded: {problem}
        </Text>
      )}
      {Object.values(parameters).length > 0 && (
        <Text size="sm" component="div">
          Parameters: <Code>{Object.values(parameters).join(", ")}</Code>
        </Text>
      )}
      {ports === null ? (
        problem === null && <Text size="sm">Inputs and outputs depend on the parameters.</Text>
      ) : (
        <>
          <Ports title="Reads" ports={ports.inputs} />
          <Ports title="Writes" ports={ports.outputs} />
          <Ports title="Keeps" ports={ports.states} />
        </>
      )}
      <Group>
        <Button size="compact-sm" variant="default" onClick={() => onInsert(translator)}>
          Insert a stage with {translator.name}
        </Button>
      </Group>
    </Stack>
  );
}

function Ports({ title, ports }: { title: string; ports: readonly Port[] }) {
  if (ports.length === 0) return null;
  return (
    <Text size="sm" component="div">
      {title}:
      {ports.map((port) => (
        <Text key={port.name} size="sm" component="div" pl="md" style={{ overflowWrap: "anywhere" }}>
          <strong>{port.name}</strong> <Code>{port.columns}</Code>
          {port.key !== "" && ` by ${port.key}`}
        </Text>
      ))}
    </Text>
  );
}
