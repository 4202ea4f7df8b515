import { Anchor, Box } from "@mantine/core";
import { useLocation } from "react-router";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import { leaderLink } from "@/format/leaderLink";
import { Notice } from "@/components/Notice";

/** Says over every screen that another instance does the work, and leads there; nothing at the one that leads. */
export function LeaderNotice() {
  const { pathname, search } = useLocation();
  const standing = useApi(["leader"], () => client.GET("/api/v1/leader"));
  if (standing.data === undefined || standing.data.role === "leads") return null;
  const leader = standing.data.leader;
  if (leader === null) {
    return (
      <Box mb="md" role="status">
        <Notice tone="warn" title="No instance leads at the moment">
          The data is as the last leader left it. No run starts until an instance becomes leader, automatically and within
          seconds.
        </Notice>
      </Box>
    );
  }
  const link = leaderLink(leader, `${pathname}${search}`);
  return (
    <Box mb="md" role="status">
      <Notice tone="quiet" title="Another instance leads">
        This instance follows: it shows what is stored, and takes over if the leader ends. To drop files, make changes or watch current
        work, sign in at the leader: {link === null ? leader : <Anchor href={link}>{leader}</Anchor>}
      </Notice>
    </Box>
  );
}
