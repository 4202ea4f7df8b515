import { Stack } from "@mantine/core";
import { useParams } from "react-router";

import { Page } from "@/components/Page";
import { OpenIntentions } from "@/screens/recovery/OpenIntentions";
import { PastRecoveries } from "@/screens/recovery/PastRecoveries";
import { PastRollbacks } from "@/screens/recovery/PastRollbacks";
import { Reach } from "@/screens/recovery/Reach";
import { RebuildBeside } from "@/screens/recovery/RebuildBeside";
import { RollBack } from "@/screens/recovery/RollBack";
import { SnapshotSection } from "@/screens/recovery/SnapshotSection";

/** What is open, what a recovery did, how far back one can go, roll-back and rebuilds. */
export default function RecoveryScreen() {
  const { dataflow = "" } = useParams();
  return (
    <Page
      title={`Recovery of ${dataflow}`}
      lead="Committed runs that are not yet published, the last recoveries, roll-backs to an earlier moment, and rebuilds."
      cli={["cbp", "intentions", dataflow]}
    >
      <Stack gap="xl">
        <OpenIntentions dataflow={dataflow} />
        <Reach dataflow={dataflow} />
        <RollBack dataflow={dataflow} />
        <RebuildBeside dataflow={dataflow} />
        <PastRollbacks dataflow={dataflow} />
        <PastRecoveries dataflow={dataflow} />
        <SnapshotSection dataflow={dataflow} />
      </Stack>
    </Page>
  );
}
