import { Box, Code } from "@mantine/core";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import { useSession } from "@/api/session";
import { Notice } from "@/components/Notice";

/** Says over every screen that the disk of the database is full, since one could sign in all the same. */
export function HeldSessionNotice() {
  const { inMemory } = useSession();
  const session = useApi(["session"], () => client.GET("/api/v1/session"), { enabled: inMemory });
  if (!inMemory || session.data?.in_memory === false) return null;
  return (
    <Box mb="md" role="status">
      <Notice tone="bad" title="The disk of the service's database is full">
        Your session is held only in the memory of the service. It ends when the service stops, and no other instance knows it.
        Runs and changes wait until there is free space. On the machine of the service, <Code>cbp doctor</Code> names the disk,
        and <Code>cbp disk NAME</Code> shows how much space each table uses.
      </Notice>
    </Box>
  );
}
