import { Alert, Anchor, Button, Card, Group, Paper, SimpleGrid, Stack, Text, Title } from "@mantine/core";
import { Link, useNavigate } from "react-router";

import { client } from "@/api/client";
import { useAction, useApi } from "@/api/hooks";
import type { components } from "@/api/schema";
import { useSession } from "@/api/session";
import { Icon } from "@/components/Icon";
import { Loading } from "@/components/Loading";
import { ProblemMessage } from "@/components/ProblemMessage";

type Example = components["schemas"]["ExampleOut"];

/** Takes a newcomer from nothing to a running dataflow. */
export function FirstSteps() {
  const { can } = useSession();
  const examples = useApi(["examples"], () => client.GET("/api/v1/examples"), { follow: false });
  return (
    <Paper withBorder p={{ base: "md", sm: "xl" }} radius="md">
      <Stack gap="lg">
        <div>
          <Title order={2} size="h3">
            No dataflow is registered yet
          </Title>
          <Text mt="xs">
            A dataflow keeps tables up to date while files arrive. To try one, take three steps:
            register it, give it a file, look at the result.
          </Text>
        </div>
        {can("admin") ? (
          <section aria-label="Ready dataflows">
            <Title order={3} size="h5" mb="xs">
              1. Register a ready dataflow
            </Title>
            {examples.isPending && <Loading />}
            {examples.isError && <ProblemMessage error={examples.error} />}
            <SimpleGrid cols={{ base: 1, sm: 2, lg: 4 }}>
              {examples.data?.items.map((example) => (
                <ExampleCard key={example.name} example={example} />
              ))}
            </SimpleGrid>
          </section>
        ) : (
          <Alert color="gray" icon={<Icon name="shield" />}>
            Registering a dataflow needs the scope admin. Ask someone whose token has it.
          </Alert>
        )}
        {can("operator") && (
          <Text size="sm">
            {can("admin") ? "Or " : "You can "}
            <Anchor component={Link} to="/register" underline="always">
              write your own document
            </Anchor>
            : the editor marks mistakes and shows the graph before anything is registered. Registered
            dataflows appear on this screen, with the reason if they wait.
          </Text>
        )}
      </Stack>
    </Paper>
  );
}

function ExampleCard({ example }: { example: Example }) {
  const navigate = useNavigate();
  const register = useAction(
    () =>
      client.POST("/api/v1/dataflows", {
        // The document is YAML text; openapi-fetch would make JSON of it.
        body: example.text as never,
        bodySerializer: (body: unknown) => String(body),
        headers: { "Content-Type": "application/yaml" },
      }),
    {
      done: `${example.name} is registered. Give it a file.`,
      onDone: () => void navigate(`/dataflows/${example.name}/sources`),
    },
  );
  return (
    <Card withBorder padding="md">
      <Stack gap="xs" justify="space-between" h="100%">
        <div>
          <Text fw={600}>{example.name}</Text>
          <Text size="sm" c="dimmed">
            {example.problem === "" ? example.summary : example.problem}
          </Text>
        </div>
        <Group>
          <Button
            size="xs"
            disabled={example.problem !== ""}
            loading={register.isPending}
            onClick={() => register.mutate()}
            aria-label={`Register ${example.name}`}
          >
            Register
          </Button>
        </Group>
      </Stack>
    </Card>
  );
}
