import { Stack } from "@mantine/core";
import { useParams } from "react-router";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import { useSession } from "@/api/session";
import { Asked } from "@/components/Asked";
import { Page } from "@/components/Page";
import { Section } from "@/components/Section";
import { useUrlState } from "@/hooks/urlState";
import { VersionList } from "@/screens/register/VersionList";
import { Workbench } from "@/screens/register/Workbench";

/** The versions of a dataflow, and the next one. */
export default function VersionsScreen() {
  const { dataflow = "" } = useParams();
  const session = useSession();
  const [from, setFrom] = useUrlState("from");
  const newest = useApi(
    ["versions", dataflow, "edited", from],
    () =>
      client.GET("/api/v1/dataflows/{name}/versions", {
        params: {
          path: { name: dataflow },
          query: { limit: 1, below: from === "" ? undefined : Number(from) + 1 },
        },
      }),
    { follow: false },
  );
  return (
    <Page
      title={`Versions of ${dataflow}`}
      lead="Edit the document, and see what a new version would keep, rebuild and lose before you apply it."
      cli={["cbp", "versions", dataflow, "--diff"]}
      wide
    >
      <Stack gap="xl">
        {session.can("operator") && (
          <Section title="New version">
            <Asked query={newest} rows={6}>
              {(page) => {
                const begin = page.items[0];
                return (
                  <Workbench
                    key={begin?.version}
                    place={`document ${dataflow} ${begin?.version}`}
                    initial={begin?.text ?? ""}
                    fresh={false}
                    onDone={() => setFrom("")}
                  />
                );
              }}
            </Asked>
          </Section>
        )}
        <VersionList
          dataflow={dataflow}
          onEdit={session.can("operator") ? (version) => setFrom(String(version)) : undefined}
        />
      </Stack>
    </Page>
  );
}
