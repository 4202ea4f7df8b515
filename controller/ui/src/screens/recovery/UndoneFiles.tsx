import { useState } from "react";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import type { components } from "@/api/schema";
import { Asked } from "@/components/Asked";
import { DataTable, Pager, type Column } from "@/components/DataTable";
import { RelativeTime } from "@/components/RelativeTime";
import { Section } from "@/components/Section";
import { formatCount, formatCounted } from "@/format/format";

type UndoneFile = components["schemas"]["UndoneFileOut"];

const PAGE = 20;

const COLUMNS: readonly Column<UndoneFile>[] = [
  {
    id: "file",
    header: "File",
    render: (row) => (row.name === "" ? "name no longer known" : row.name),
  },
  { id: "source", header: "Source", render: (row) => row.source },
  { id: "index", header: "Increment", align: "right", render: (row) => formatCount(row.index) },
  { id: "accepted", header: "Accepted", render: (row) => <RelativeTime at={row.accepted_at} never="not known" /> },
  { id: "then", header: "Then", render: (row) => (row.again ? "Applied again" : "Dropped") },
];

interface UndoneFilesProps {
  dataflow: string;
  to: string;
  dropLater: boolean;
  /** The first files, which came with the plan. */
  files: readonly UndoneFile[];
  total: number;
  /** Where the files after them begin. */
  next: string | null;
}

/** The files whose effect a roll-back undoes, by name; page by page if there are many. */
export function UndoneFiles({ dataflow, to, dropLater, files, total, next: second }: UndoneFilesProps) {
  // The cursors of the pages that were opened, the first page left out.
  const [opened, setOpened] = useState<readonly string[]>([]);
  const cursor = opened.at(-1);
  const later = useApi(
    ["rollback-files", dataflow, to, dropLater, cursor],
    () =>
      client.GET("/api/v1/dataflows/{name}/rollback/files", {
        params: { path: { name: dataflow }, query: { to, drop_later: dropLater, cursor: cursor ?? null, limit: PAGE } },
      }),
    { enabled: cursor !== undefined, follow: false, keepPrevious: true },
  );
  if (total === 0) return null;
  const table = (rows: readonly UndoneFile[], next: string | null | undefined) => (
    <DataTable
      label="Files that are undone"
      columns={COLUMNS}
      rows={rows}
      rowKey={(row) => `${row.source}/${row.index}`}
      sortName="undone-sort"
      minWidth={520}
      paging={
        total > PAGE ? (
          <Pager
            list="undone files"
            shown={formatCounted(rows.length, "file")}
            firstWord="First"
            first={opened.length === 0 ? undefined : () => setOpened([])}
            back={opened.length === 0 ? undefined : () => setOpened(opened.slice(0, -1))}
            next={next === null || next === undefined ? undefined : () => setOpened([...opened, next])}
          />
        ) : undefined
      }
    />
  );
  return (
    <Section
      title={`${formatCounted(total, "file")} ${total === 1 ? "is" : "are"} undone`}
      lead="Files that the undone runs have read. Each file is applied again, or dropped."
    >
      {cursor === undefined ? (
        table(files, second)
      ) : (
        <Asked query={later}>{(page) => table(page.items, page.cursor)}</Asked>
      )}
    </Section>
  );
}
