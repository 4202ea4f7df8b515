import { Button, Group, Text } from "@mantine/core";
import { useEffect } from "react";
import { useRouteError } from "react-router";

import { client } from "@/api/client";
import { useLost } from "@/api/reachable";
import { isMissingCode, mayReload } from "@/app/missingCode";
import { Page } from "@/components/Page";
import { ProblemMessage } from "@/components/ProblemMessage";

const RELOADED = "cbp-reloaded";

/** What is shown in place of a screen that failed; the others continue. */
export function RouteFailure() {
  const error = useRouteError();
  if (isMissingCode(error)) return <MissingScreen error={error} />;
  return (
    <Page title="This screen failed">
      <ProblemMessage error={error} />
      <Group>
        <Button onClick={() => window.location.reload()}>Reload the page</Button>
      </Group>
    </Page>
  );
}

/** A screen whose code could not be fetched: the page is loaded anew once the service answers. */
function MissingScreen({ error }: { error: unknown }) {
  const lost = useLost();
  const again = mayReload(window.sessionStorage.getItem(RELOADED), Date.now());
  useEffect(() => {
    if (!again) return undefined;
    if (lost !== null) return undefined;
    let left = false;
    // Not known to be lost: only an answer says that it is there.
    void client.GET("/api/v1/health/live").then(({ response }) => {
      if (left || !response.ok) return;
      window.sessionStorage.setItem(RELOADED, String(Date.now()));
      window.location.reload();
    }, () => undefined);
    return () => {
      left = true;
    };
  }, [again, lost]);
  return (
    <Page title="This screen is not loaded yet">
      {again ? (
        <Text size="sm">The code of this screen could not be fetched. The screen opens by itself once the service answers.</Text>
      ) : (
        <ProblemMessage error={error} />
      )}
      <Group>
        <Button onClick={() => window.location.reload()}>Reload the page</Button>
      </Group>
    </Page>
  );
}
