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
      lead="Degraded parts and their repair, garbage collection, retention, and disk use."
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
