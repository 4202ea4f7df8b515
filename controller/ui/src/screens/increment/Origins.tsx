import { Anchor, Text } from "@mantine/core";
import { Link } from "react-router";

import { bodyOf, client } from "@/api/client";
import { useApi } from "@/api/hooks";
import { ProblemError } from "@/api/problem";
import { Asked } from "@/components/Asked";
import { DataTable, type Column } from "@/components/DataTable";
import { Section } from "@/components/Section";
import { formatCount, UNKNOWN } from "@/format/format";
import { originsOf, RUNS_MAX, type Origin } from "@/screens/increment/origins";

const SHOWN = 20;

/** Which increments and files an increment was made of, back through the runs that wrote them. */
export function Origins({ dataflow, run }: { dataflow: string; run: string }) {
  const origins = useApi(
    ["increments", dataflow, "origins", run],
    async () => ({ data: await originsOf(run, causesOf), response: new Response() }),
    { follow: false },
  );
  return (
    <Section
      title="Origins"
      lead="The increments that the run of this increment read, and the increments from which those were made. For earlier contents of a state, see the history of a key."
    >
      <Asked query={origins} rows={2}>
        {(answer) => (
          <>
            <DataTable
              label="Origins of the increment"
              columns={columnsOf(dataflow)}
              rows={answer.origins.slice(0, SHOWN)}
              rowKey={(row) => `${row.flow}/${row.index}`}
              sortName="origins"
              empty={<Text size="sm">The run read no increment, or the increments that it read are no longer known.</Text>}
            />
            {(answer.cut || answer.origins.length > SHOWN) && (
              <Text size="xs" c="dimmed" mt={4}>
                {answer.cut
                  ? `There are more: only the ${RUNS_MAX} nearest runs are followed.`
                  : `And ${formatCount(answer.origins.length - SHOWN)} more; the screen of the run lists them.`}
              </Text>
            )}
          </>
        )}
      </Asked>
    </Section>
  );
}

/** Return what caused a run; nothing if the run is forgotten. */
async function causesOf(run: string) {
  try {
    return (await bodyOf(client.GET("/api/v1/runs/{run}/lineage", { params: { path: { run } } }))).causes;
  } catch (error) {
    if (error instanceof ProblemError && error.status === 404) return [];
    throw error;
  }
}

function columnsOf(dataflow: string): readonly Column<Origin>[] {
  return [
    {
      id: "increment",
      header: "Increment",
      render: (row) => (
        <Anchor component={Link} to={`/dataflows/${dataflow}/increments/${row.flow}/${row.index}`} size="sm">
          {row.flow}/{row.index}
        </Anchor>
      ),
    },
    {
      id: "by",
      header: "Came from",
      render: (row) =>
        row.run !== null ? (
          <Anchor component={Link} to={`/runs/${row.run}`} size="sm">
            run {row.run}
          </Anchor>
        ) : row.files.length > 0 ? (
          <span style={{ overflowWrap: "anywhere" }}>file {row.files.join(", ")}</span>
        ) : (
          UNKNOWN
        ),
    },
    { id: "steps", header: "Runs between", align: "right", render: (row) => formatCount(row.steps) },
  ];
}
