import { Alert, Button, Code, Paper, PasswordInput, Stack, Text, Title } from "@mantine/core";
import { useState, type FormEvent } from "react";

import { useSession } from "@/api/session";
import { CliHint } from "@/components/CliHint";
import { Icon } from "@/components/Icon";
import { ProblemMessage } from "@/components/ProblemMessage";

/** Says how to sign in by a link, and takes a token as the other way. */
export function SignIn() {
  const session = useSession();
  const [token, setToken] = useState("");
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);

  async function submit(event: FormEvent) {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await session.signIn(token.trim());
    } catch (refused) {
      setError(refused);
    } finally {
      setBusy(false);
    }
  }

  const shown = error ?? session.refusal;
  return (
    <Paper withBorder p="xl" maw={480} mx="auto" mt="xl" radius="md">
      <Stack>
        <Title order={1} size="h3">
          Sign in
        </Title>
        {session.ended && (
          <Alert color="orange" variant="light" icon={<Icon name="clock" />} role="status">
            <Text size="sm" c="var(--mantine-color-text)">
              Your session has ended. Sign in again to continue where you were.
            </Text>
          </Alert>
        )}
        <Text size="sm">
          On the machine of the service, this command prints a link that signs you in. So does{" "}
          <Code>cbp serve</Code> at its start.
        </Text>
        <CliHint words={["cbp", "link"]} />
        <form onSubmit={(event) => void submit(event)} aria-label="Sign in">
          <Stack>
            <PasswordInput
              label="Or sign in with a token"
              description="A token from cbp tokens new, or the content of the service's token file. The page exchanges it for a session and does not store it."
              autoComplete="off"
              required
              value={token}
              onChange={(event) => setToken(event.currentTarget.value)}
            />
            {shown !== null && <ProblemMessage error={shown} />}
            <Button type="submit" loading={busy}>
              Sign in
            </Button>
          </Stack>
        </form>
      </Stack>
    </Paper>
  );
}
