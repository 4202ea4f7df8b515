import { Button, Code, Text } from "@mantine/core";

import { client } from "@/api/client";
import { useAction, useApi } from "@/api/hooks";
import type { components } from "@/api/schema";
import { Asked } from "@/components/Asked";
import { DataTable, Pager, type Column } from "@/components/DataTable";
import { RelativeTime } from "@/components/RelativeTime";
import { Section } from "@/components/Section";
import { usePaging } from "@/hooks/paging";

type One = components["schemas"]["SessionOut"];

/** Browsers that are signed in; each can be ended. */
export function SessionsSection() {
  const paging = usePaging("sessions");
  const sessions = useApi(
    ["sessions", paging.cursor],
    () => client.GET("/api/v1/sessions", { params: { query: { cursor: paging.cursor ?? null } } }),
    { keepPrevious: true },
  );
  const end = useAction(
    (session: string) =>
      client.DELETE("/api/v1/sessions/{session}", { params: { path: { session } } }),
    { done: "The session has ended", changes: [["sessions"]] },
  );
  const columns: readonly Column<One>[] = [
    {
      id: "id",
      header: "Session",
      render: (row) => (row.current ? <Text size="sm" fw={600}>{`${row.id} (this one)`}</Text> : row.id),
    },
    { id: "actor", header: "Made from", sort: (row) => row.actor, render: (row) => row.actor },
    { id: "scope", header: "May", sort: (row) => row.scope, render: (row) => row.scope },
    { id: "seen", header: "Last seen", sort: (row) => row.last_seen_at, render: (row) => <RelativeTime at={row.last_seen_at} /> },
    { id: "ends", header: "Ends", sort: (row) => row.expires_at, render: (row) => <RelativeTime at={row.expires_at} /> },
    { id: "address", header: "Address", render: (row) => row.address },
    {
      id: "agent",
      header: "Browser",
      render: (row) => (
        <Text size="sm" lineClamp={1} title={row.agent} maw={260}>
          {row.agent}
        </Text>
      ),
    },
    {
      id: "actions",
      header: "Actions",
      align: "right",
      render: (row) =>
        row.current ? null : (
          <Button
            size="compact-sm"
            variant="default"
            aria-label={`End session ${row.id}`}
            loading={end.isPending && end.variables === row.id}
            onClick={() => end.mutate(row.id)}
          >
            End
          </Button>
        ),
    },
  ];
  return (
    <Section
      title="Sessions"
      lead={
        <>
          Browsers that are signed in, by a link or a token; <Code>cbp tokens sessions</Code> lists them,
          too.
        </>
      }
    >
      <Asked query={sessions}>
        {(page) => (
          <DataTable
            label="Browsers that are signed in"
            columns={columns}
            rows={page.items}
            rowKey={(row) => row.id}
            sortName="sessions-sort"
            minWidth={860}
            paging={
              (paging.first !== undefined || page.cursor !== null) && (
                <Pager
                  list="sessions"
                  shown={`${page.items.length} sessions`}
                  first={paging.first}
                  back={paging.back}
                  next={paging.next(page.cursor)}
                />
              )
            }
          />
        )}
      </Asked>
    </Section>
  );
}
