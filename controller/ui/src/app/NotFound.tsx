import { Button } from "@mantine/core";
import { Link, useLocation } from "react-router";

import { EmptyState } from "@/components/EmptyState";
import { Page } from "@/components/Page";

/** What an address shows that no screen has. */
export function NotFound() {
  const { pathname } = useLocation();
  return (
    <Page title="No such screen">
      <EmptyState
        icon="search"
        title={`There is no screen at ${pathname}`}
        actions={
          <Button component={Link} to="/">
            All dataflows
          </Button>
        }
      >
        The link may come from another version. Press Ctrl K (or ⌘ K) to look for a screen, a dataflow
        or a stage.
      </EmptyState>
    </Page>
  );
}
