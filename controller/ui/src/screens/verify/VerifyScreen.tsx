import { Stack } from "@mantine/core";
import { useParams } from "react-router";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import { useSession } from "@/api/session";
import { Asked } from "@/components/Asked";
import { Page } from "@/components/Page";
import { useUrlState } from "@/hooks/urlState";
import { Result } from "@/screens/verify/Result";
import { Start } from "@/screens/verify/Start";
import { VerificationList } from "@/screens/verify/VerificationList";

const UNDER_WAY_MILLISECONDS = 2_000;

/** Recompute a dataflow from its input, and compare every table. */
export default function VerifyScreen() {
  const { dataflow = "" } = useParams();
  const session = useSession();
  const [chosen, setChosen] = useUrlState("verification");
  const verifications = useApi(
    ["verifications", dataflow],
    () =>
      client.GET("/api/v1/dataflows/{name}/verifications", {
        params: { path: { name: dataflow } },
      }),
    { every: (page) => (page?.items.some((one) => !one.ended) ? UNDER_WAY_MILLISECONDS : undefined) },
  );
  const items = verifications.data?.items ?? [];
  const shown = items.find((one) => one.id === chosen) ?? items[0];
  const underWay = items.some((one) => !one.ended);
  return (
    <Page
      title={`Verify ${dataflow}`}
      lead="Recomputes the dataflow from the retained input, and compares every table. Runs continue meanwhile."
      cli={["cbp", "verify", dataflow]}
    >
      <Stack gap="xl">
        {session.can("operator") && (
          <Start dataflow={dataflow} disabled={underWay} onStarted={setChosen} />
        )}
        <Asked query={verifications}>
          {() => (
            <>
              {shown !== undefined && (
                <Result key={shown.id} verification={shown} canCancel={session.can("operator")} />
              )}
              <VerificationList verifications={items} shown={shown?.id} onOpen={setChosen} />
            </>
          )}
        </Asked>
      </Stack>
    </Page>
  );
}
