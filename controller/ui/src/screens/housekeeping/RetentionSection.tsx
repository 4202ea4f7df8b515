import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import type { components } from "@/api/schema";
import { useSession } from "@/api/session";
import { Asked } from "@/components/Asked";
import { DataTable, type Column } from "@/components/DataTable";
import { Section } from "@/components/Section";
import { formatBytes, formatSeconds } from "@/format/format";

type Detail = components["schemas"]["DataflowDetail"];

interface Kept {
  what: string;
  long: string;
  by: string;
}

const COLUMNS: readonly Column<Kept>[] = [
  { id: "what", header: "What", render: (row) => row.what },
  { id: "long", header: "Kept", render: (row) => row.long },
  { id: "by", header: "Set by", render: (row) => row.by },
];

function long(hours: number | null, bytes: number, increments = 0): string {
  const parts = [
    ...(hours === null ? [] : [formatSeconds(hours * 3600)]),
    ...(bytes > 0 ? [`up to ${formatBytes(bytes)}`] : []),
    ...(increments > 0 ? [`the newest ${increments}`] : []),
  ];
  return parts.join(", ") || "forever";
}

/** Return how long everything of a dataflow stays. Pure. */
function keptOf(detail: Detail, settings: Record<string, unknown> | undefined): Kept[] {
  if (settings === undefined) return keptOfDataflow(detail);
  const hours = Number(settings["keep_hours"] ?? 0);
  const least = String(settings["keep_versions_min"] ?? "");
  const days = Number(settings["scrub_days"] ?? 0);
  return [
    {
      what: "Versions of tables",
      long: `${formatSeconds(hours * 3600)} after a newer version, and the ${least} before the newest`,
      by: "CBP_KEEP_HOURS, CBP_KEEP_VERSIONS_MIN",
    },
    ...keptOfDataflow(detail),
    {
      what: "Files that were taken in (finished/)",
      long: long(Number(settings["keep_finished_hours"] ?? 0), Number(settings["keep_finished_bytes"] ?? 0)),
      by: "CBP_KEEP_FINISHED_HOURS, CBP_KEEP_FINISHED_BYTES",
    },
    {
      what: "Check of all files (scrub)",
      long: days === 0 ? "never starts automatically" : `every ${formatSeconds(days * 86_400)}`,
      by: "CBP_SCRUB_DAYS",
    },
  ];
}

/** Return how long increments stay, which a dataflow may say itself. Pure. */
function keptOfDataflow(detail: Detail): Kept[] {
  return [
    ...detail.sources.map((source) => ({
      what: `Increments of source ${source.name}, after all stages have read them`,
      long: long(source.keep.hours, source.keep.bytes, source.keep.increments),
      by: source.keep.by === "dataflow" ? "keep: of the source" : "CBP_KEEP_INPUTS_*",
    })),
    ...detail.stages.flatMap((stage) =>
      Object.keys(stage.outputs).map((flow) => {
        const keep = stage.keep[flow];
        return {
          what: `Increments of ${flow}, after all readers have read them`,
          long: keep === undefined ? "forever" : long(keep.hours, keep.bytes),
          by: keep === undefined ? "the stage declares no keep:" : "keep: of the stage",
        };
      }),
    ),
  ];
}

/** How long what stays, and what sets it. */
export function RetentionSection({ dataflow }: { dataflow: string }) {
  const detail = useApi(
    ["dataflows", dataflow],
    () => client.GET("/api/v1/dataflows/{name}", { params: { path: { name: dataflow } } }),
    { follow: false },
  );
  const session = useSession();
  const settings = useApi(["settings"], () => client.GET("/api/v1/settings"), {
    enabled: session.can("operator"),
    follow: false,
  });
  return (
    <Section title="Retention in effect">
      <Asked query={detail}>
        {(one) => (
          <DataTable
            label="Retention by kind of data"
            columns={COLUMNS}
            rows={keptOf(one, settings.data)}
            rowKey={(row) => row.what}
            sortName="retention-sort"
          />
        )}
      </Asked>
    </Section>
  );
}
