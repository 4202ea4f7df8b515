import { Anchor, Badge, Button, Code, Group, List, Stack, Text } from "@mantine/core";
import { Link } from "react-router";

import { client } from "@/api/client";
import { useAction, useApi } from "@/api/hooks";
import type { components } from "@/api/schema";
import { useSession } from "@/api/session";
import { Asked } from "@/components/Asked";
import { DataTable, type Column } from "@/components/DataTable";
import { EmptyState } from "@/components/EmptyState";
import { Icon } from "@/components/Icon";
import { Nothing } from "@/components/Nothing";
import { Page } from "@/components/Page";
import { RelativeTime } from "@/components/RelativeTime";
import { Section } from "@/components/Section";
import { outcomeOfTest } from "@/screens/alerts/words";

type AlertRow = components["schemas"]["AlertOut"];
type Delivery = components["schemas"]["DeliveryOut"];

const HOLDING: readonly Column<AlertRow>[] = [
  {
    id: "severity",
    header: "Severity",
    render: (row) => (
      <Badge
        variant="light"
        tt="none"
        radius="sm"
        color={row.severity === "critical" ? "red" : "orange"}
        leftSection={<Icon name="alert" size={12} />}
        styles={{ label: { color: "var(--mantine-color-text)" } }}
      >
        {row.severity}
      </Badge>
    ),
  },
  { id: "since", header: "Since", render: (row) => <RelativeTime at={row.since} /> },
  {
    id: "alert",
    header: "What happened, and what to do",
    render: (row) => (
      <Stack gap={2}>
        {row.dataflow === "" ? (
          <Text size="sm">{row.summary}</Text>
        ) : (
          <Anchor component={Link} to={`/dataflows/${encodeURIComponent(row.dataflow)}`} size="sm">
            {row.summary}
          </Anchor>
        )}
        <Text size="xs" c="dimmed" style={{ overflowWrap: "anywhere" }}>
          {row.detail}
        </Text>
        <Text size="xs">{row.action}</Text>
      </Stack>
    ),
  },
];

const SENT: Column<AlertRow> = {
  id: "sent",
  header: "Sent",
  render: (row) => <RelativeTime at={row.sent_at} never={row.severity === "critical" ? "not yet: at the next check, within half a minute" : "not yet: the alert must last a minute first"} />,
};

const DELIVERIES: readonly Column<Delivery>[] = [
  { id: "at", header: "When", render: (row) => <RelativeTime at={row.at} /> },
  { id: "channel", header: "Channel", render: (row) => row.channel },
  { id: "outcome", header: "Outcome", render: (row) => row.error ?? "sent" },
  {
    id: "what",
    header: "What",
    render: (row) => (
      <List size="sm" listStyleType="none">
        {row.summaries.map((summary, at) => (
          <List.Item key={`${at}/${summary}`}>{summary}</List.Item>
        ))}
      </List>
    ),
  },
];

/** What is wrong, who is notified, what became of it, and a test of the way to people. */
export default function AlertsScreen() {
  const alerts = useApi(["alerts"], () => client.GET("/api/v1/alerts"));
  const test = useAction(() => client.POST("/api/v1/alerts/test"), {
    done: (answer) => outcomeOfTest(answer.deliveries),
    changes: [["alerts"]],
  });
  const mayTest = useSession().can("operator");
  return (
    <Page
      title="Alerts"
      lead="Failures that need an operator, and the channels (webhook or e-mail) to which messages are sent."
      cli={["cbp", "alerts"]}
    >
      <Asked query={alerts}>
        {(answer) =>
          answer.channels.length === 0 ? (
            <Stack gap="xl">
              <Holding rows={answer.standing} columns={HOLDING} />
              <EmptyState icon="bell" title="No channel is configured">
                Set <Code>CBP_ALERT_WEBHOOK_URL</Code>, or <Code>CBP_ALERT_EMAIL_TO</Code> and{" "}
                <Code>CBP_SMTP_URL</Code>, and restart the service. Until then only this page,{" "}
                <Code>cbp alerts</Code> and <Code>cbp status</Code> show that something is
                wrong.
              </EmptyState>
            </Stack>
          ) : (
            <Stack gap="xl">
              <Holding rows={answer.standing} columns={[...HOLDING, SENT]} />
              <Section
                title="Channels"
                lead="Set by the service's settings; secrets are not shown."
                actions={
                  mayTest && (
                    <Button
                      variant="default"
                      leftSection={<Icon name="bell" />}
                      loading={test.isPending}
                      onClick={() => test.mutate()}
                    >
                      Send a test
                    </Button>
                  )
                }
              >
                <Group gap="xs">
                  {answer.channels.map((channel) => (
                    <Code key={channel}>{channel}</Code>
                  ))}
                </Group>
              </Section>
              <Section title="Last deliveries">
                <DataTable
                  label="Table of deliveries"
                  columns={DELIVERIES}
                  rows={answer.deliveries}
                  rowKey={(row) => `${row.at}/${row.channel}`}
                  sortName="deliveries-sort"
                  empty={<Nothing>Nothing was sent yet.</Nothing>}
                />
              </Section>
            </Stack>
          )
        }
      </Asked>
    </Page>
  );
}

function Holding({ rows, columns }: { rows: readonly AlertRow[]; columns: readonly Column<AlertRow>[] }) {
  return (
    <Section title="Current alerts">
      <DataTable
        label="Table of alerts"
        columns={columns}
        rows={rows}
        rowKey={(row) => `${row.kind}/${row.summary}`}
        sortName="alerts-sort"
        empty={<Nothing>Nothing is wrong.</Nothing>}
      />
    </Section>
  );
}
