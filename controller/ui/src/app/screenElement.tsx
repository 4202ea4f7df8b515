import { lazy, Suspense, type ReactElement } from "react";

import { useSession } from "@/api/session";
import { EmptyState } from "@/components/EmptyState";
import { Loading } from "@/components/Loading";
import { Page } from "@/components/Page";
import type { Screen } from "@/screens/registry";

/** Return what shows a screen: its code is fetched when it is opened. */
export function screenElement(screen: Screen): ReactElement {
  const Content = lazy(screen.load);
  return (
    <Allowed screen={screen}>
      <Suspense fallback={<Loading label={`Loading ${screen.title}`} />}>
        <Content />
      </Suspense>
    </Allowed>
  );
}

function Allowed({ screen, children }: { screen: Screen; children: ReactElement }) {
  const session = useSession();
  if (session.can(screen.scope)) return children;
  return (
    <Page title={screen.title}>
      <EmptyState icon="shield" title={`${screen.title} needs the scope ${screen.scope}`}>
        You are signed in with the scope {session.scope ?? "none"}. Ask an administrator for a link
        with more rights: cbp link --scope {screen.scope}.
      </EmptyState>
    </Page>
  );
}
