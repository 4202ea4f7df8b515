import { Stack } from "@mantine/core";
import { useParams } from "react-router";

import { Page } from "@/components/Page";
import { Degraded } from "@/screens/housekeeping/Degraded";
import { DiskUse } from "@/screens/housekeeping/DiskUse";
import { GarbageSection } from "@/screens/housekeeping/GarbageSection";
import { RetentionSection } from "@/screens/housekeeping/RetentionSection";
import { ScrubSection } from "@/screens/housekeeping/ScrubSection";

/** What is damaged, what can go, what stays how long, and what takes the space. */
export default function HousekeepingScreen() {
  const { dataflow = "" } = useParams();
  return (
    <Page
      title={`Housekeeping of ${dataflow}`}
      lead="What is degraded and how to repair it, what can be collected, how long things stay, and what takes the space."
      cli={["cbp", "gc", dataflow, "--dry-run"]}
    >
      <Stack gap="xl">
        <Degraded dataflow={dataflow} />
        <ScrubSection dataflow={dataflow} />
        <GarbageSection dataflow={dataflow} />
        <DiskUse dataflow={dataflow} />
        <RetentionSection dataflow={dataflow} />
      </Stack>
    </Page>
  );
}
