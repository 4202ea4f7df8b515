import { Anchor, Button, Code, Group, Text } from "@mantine/core";
import { useState } from "react";
import { Link } from "react-router";

import { client } from "@/api/client";
import { useAction, useApi } from "@/api/hooks";
import type { components } from "@/api/schema";
import { Asked } from "@/components/Asked";
import { DataTable, Pager, type Column } from "@/components/DataTable";
import { EmptyState } from "@/components/EmptyState";
import { RelativeTime } from "@/components/RelativeTime";
import { Section } from "@/components/Section";
import { StateBadge } from "@/components/StateBadge";
import { usePaging } from "@/hooks/paging";
import { AskFirst } from "@/components/AskFirst";
import type { Made } from "@/screens/tokens/SecretDialog";

type Token = components["schemas"]["TokenOut"];

const STATES = {
  valid: { state: "ok", word: "Valid" },
  expired: { state: "paused", word: "Expired" },
  revoked: { state: "stopped", word: "Revoked" },
} as const;

/** Named tokens; each can be rotated and revoked. */
export function TokensSection({ onMade }: { onMade: (made: Made) => void }) {
  const paging = usePaging();
  const [asked, setAsked] = useState<{ what: "rotate" | "revoke"; name: string } | null>(null);
  const tokens = useApi(
    ["tokens", paging.cursor],
    () => client.GET("/api/v1/tokens", { params: { query: { cursor: paging.cursor ?? null } } }),
    { keepPrevious: true },
  );
  const rotate = useAction(
    (token: string) => client.POST("/api/v1/tokens/{token}/rotate", { params: { path: { token } } }),
    { onDone: onMade, changes: [["tokens"], ["sessions"]] },
  );
  const revoke = useAction(
    (token: string) => client.DELETE("/api/v1/tokens/{token}", { params: { path: { token } } }),
    { done: (answer) => `${answer.name} is revoked`, changes: [["tokens"], ["sessions"]] },
  );
  const columns: readonly Column<Token>[] = [
    {
      id: "name",
      header: "Token",
      sort: (row) => row.name,
      render: (row) => (
        <>
          <Text size="sm" fw={600}>
            {row.name}
          </Text>
          <Code>{row.prefix}...</Code>
        </>
      ),
    },
    { id: "scope", header: "May", sort: (row) => row.scope, render: (row) => row.scope },
    {
      id: "state",
      header: "State",
      sort: (row) => row.state,
      render: (row) => <StateBadge {...STATES[row.state]} />,
    },
    {
      id: "dataflows",
      header: "Dataflows",
      render: (row) => (row.dataflows === null ? "all" : row.dataflows.join(", ")),
    },
    { id: "made", header: "Made", sort: (row) => row.created_at, render: (row) => <RelativeTime at={row.created_at} /> },
    {
      id: "used",
      header: "Last used",
      sort: (row) => row.last_used_at ?? "",
      render: (row) => <RelativeTime at={row.last_used_at} never="never" />,
    },
    {
      id: "expires",
      header: "Expires",
      sort: (row) => row.expires_at ?? "9",
      render: (row) => <RelativeTime at={row.expires_at} never="never" />,
    },
    {
      id: "actions",
      header: "Actions",
      align: "right",
      render: (row) => (
        <Group gap="xs" justify="flex-end" wrap="nowrap">
          <Anchor component={Link} size="sm" to={`/audit?actor=${encodeURIComponent(`token:${row.name}`)}`}>
            Audit
          </Anchor>
          {row.state !== "revoked" && (
            <>
              <Button
                size="compact-sm"
                variant="default"
                aria-label={`Rotate ${row.name}`}
                onClick={() => setAsked({ what: "rotate", name: row.name })}
              >
                Rotate
              </Button>
              <Button
                size="compact-sm"
                variant="default"
                aria-label={`Revoke ${row.name}`}
                onClick={() => setAsked({ what: "revoke", name: row.name })}
              >
                Revoke
              </Button>
            </>
          )}
        </Group>
      ),
    },
  ];
  return (
    <Section title="Named tokens">
      <Asked query={tokens}>
        {(page) => (
          <DataTable
            label="Tokens by name"
            columns={columns}
            rows={page.items}
            rowKey={(row) => row.name}
            minWidth={860}
            empty={
              <EmptyState icon="key" title="No named tokens">
                Create one for each program and each person, so that the audit log shows who changed what.
              </EmptyState>
            }
            paging={
              (paging.first !== undefined || page.cursor !== null) && (
                <Pager
                  list="tokens"
                  shown={`${page.items.length} tokens`}
                  first={paging.first}
                  back={paging.back}
                  next={paging.next(page.cursor)}
                />
              )
            }
          />
        )}
      </Asked>
      {asked !== null && (
        <AskFirst
          title={asked.what === "rotate" ? `Rotate ${asked.name}?` : `Revoke ${asked.name}?`}
          action={asked.what === "rotate" ? "Rotate" : "Revoke"}
          onClose={() => setAsked(null)}
          onConfirm={() => (asked.what === "rotate" ? rotate : revoke).mutate(asked.name)}
        >
          {asked.what === "rotate"
            ? "The token gets a new secret, which is shown once. The old secret and sessions made from the token end at once."
            : "The token and sessions made from it end at once. A revoked token cannot be restored."}
        </AskFirst>
      )}
    </Section>
  );
}
