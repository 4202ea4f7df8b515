import { Stack } from "@mantine/core";
import { useParams } from "react-router";

import { Page } from "@/components/Page";
import { OpenIntentions } from "@/screens/recovery/OpenIntentions";
import { PastRecoveries } from "@/screens/recovery/PastRecoveries";
import { PastRollbacks } from "@/screens/recovery/PastRollbacks";
import { RollBack } from "@/screens/recovery/RollBack";
import { SnapshotSection } from "@/screens/recovery/SnapshotSection";

/** What is open, what a recovery did, and roll-back to an earlier moment. */
export default function RecoveryScreen() {
  const { dataflow = "" } = useParams();
  return (
    <Page
      title={`Recovery of ${dataflow}`}
      lead="What is committed and not yet published, what the last recoveries did, and roll-back to an earlier moment."
      cli={["cbp", "intentions", dataflow]}
    >
      <Stack gap="xl">
        <OpenIntentions dataflow={dataflow} />
        <RollBack dataflow={dataflow} />
        <PastRollbacks dataflow={dataflow} />
        <PastRecoveries dataflow={dataflow} />
        <SnapshotSection dataflow={dataflow} />
      </Stack>
    </Page>
  );
}
