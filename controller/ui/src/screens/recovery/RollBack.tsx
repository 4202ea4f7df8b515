import { Button, Group, VisuallyHidden } from "@mantine/core";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import type { components } from "@/api/schema";
import { useSession } from "@/api/session";
import { Asked } from "@/components/Asked";
import { DataTable, type Column } from "@/components/DataTable";
import { Icon } from "@/components/Icon";
import { Nothing } from "@/components/Nothing";
import { RelativeTime } from "@/components/RelativeTime";
import { Section } from "@/components/Section";
import { formatCounted } from "@/format/format";
import { useUrlState } from "@/hooks/urlState";
import { RollbackDialog } from "@/screens/recovery/RollbackDialog";

type Moment = components["schemas"]["MomentOut"];

const PAGE = 50;
const STEP = 10;

/** The moments to which a dataflow may go back, and what goes there. */
export function RollBack({ dataflow }: { dataflow: string }) {
  const session = useSession();
  const [to, setTo] = useUrlState("to", "", { push: true });
  const [shown, setShown] = useUrlState("moments", String(STEP));
  const moments = useApi(["moments", dataflow], () =>
    client.GET("/api/v1/dataflows/{name}/rollback/moments", {
      params: { path: { name: dataflow }, query: { limit: PAGE } },
    }),
  );
  const columns: readonly Column<Moment>[] = [
    { id: "position", header: "Position", align: "right", render: (row) => row.position },
    {
      id: "moment",
      header: "Moment",
      render: (row) =>
        row.at === null ? "Before the first run" : <RelativeTime at={row.at} both />,
    },
    {
      id: "last",
      header: "Last run to keep",
      render: (row) => (row.stage === "" ? "none" : `epoch ${row.epoch} of ${row.stage}`),
    },
    {
      id: "undoes",
      header: "Undoes",
      align: "right",
      render: (row) => {
        const runs = (moments.data?.items[0]?.position ?? row.position) - row.position;
        return runs === 0 ? "no run" : formatCounted(runs, "run");
      },
    },
    {
      id: "go",
      header: "Effects",
      align: "right",
      render: (row) => (
        <Button
          size="compact-sm"
          variant="default"
          leftSection={<Icon name="undo" size={14} />}
          onClick={() => setTo(String(row.position))}
        >
          Preview
          <VisuallyHidden> position {row.position}</VisuallyHidden>
        </Button>
      ),
    },
  ];
  return (
    <Section
      title="Roll back"
      lead="Takes tables, queues and epochs back to a roll-back point, an earlier moment. Before you confirm, you see the runs and files that this undoes."
    >
      <Asked query={moments}>
        {(page) => (
          <>
            <DataTable
              label="Roll-back points"
              columns={columns}
              rows={page.items.slice(0, Number(shown) || STEP)}
              rowKey={(row) => `${row.position}/${row.stage}`}
              sortName="moments-sort"
              empty={<Nothing>There is no run to undo yet.</Nothing>}
            />
            {page.items.length > (Number(shown) || STEP) && (
              <Group>
                <Button variant="default" size="compact-sm" onClick={() => setShown(String(PAGE))}>
                  Show all {page.items.length} moments
                </Button>
              </Group>
            )}
          </>
        )}
      </Asked>
      {to !== "" && (
        <RollbackDialog
          dataflow={dataflow}
          to={to}
          allowed={session.can("admin")}
          onClose={() => setTo("")}
        />
      )}
    </Section>
  );
}
