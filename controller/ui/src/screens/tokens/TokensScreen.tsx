import { Button } from "@mantine/core";
import { useState } from "react";

import { Icon } from "@/components/Icon";
import { Page } from "@/components/Page";
import { NewTokenDialog } from "@/screens/tokens/NewTokenDialog";
import { SecretDialog, type Made } from "@/screens/tokens/SecretDialog";
import { SessionsSection } from "@/screens/tokens/SessionsSection";
import { TokensSection } from "@/screens/tokens/TokensSection";

/** Who may use the service: named tokens, and the browsers that are signed in. */
export default function TokensScreen() {
  const [asking, setAsking] = useState(false);
  const [made, setMade] = useState<Made | null>(null);
  return (
    <Page
      title="Tokens"
      lead="Who may use the service, what they may do, and for how long. The token file is not listed. It holds the admin's token, which works even if the database is lost."
      cli={["cbp", "tokens", "list"]}
      actions={
        <Button leftSection={<Icon name="plus" />} onClick={() => setAsking(true)}>
          New token
        </Button>
      }
    >
      <TokensSection onMade={setMade} />
      <SessionsSection />
      {asking && (
        <NewTokenDialog
          onClose={() => setAsking(false)}
          onMade={(answer) => {
            setAsking(false);
            setMade(answer);
          }}
        />
      )}
      {made !== null && <SecretDialog made={made} onClose={() => setMade(null)} />}
    </Page>
  );
}
