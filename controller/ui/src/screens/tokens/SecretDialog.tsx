import { Alert, Button, Code, CopyButton, Group, Modal, Stack, Text } from "@mantine/core";

import type { components } from "@/api/schema";
import { Icon } from "@/components/Icon";

export type Made = components["schemas"]["NewTokenOut"];

/** Shows the secret of a token, this once. */
export function SecretDialog({ made, onClose }: { made: Made; onClose: () => void }) {
  return (
    <Modal
      opened
      onClose={onClose}
      title={`The secret of ${made.token.name}`}
      size="lg"
      closeOnClickOutside={false}
      closeButtonProps={{ "aria-label": "Close" }}
    >
      <Stack>
        <Alert color="orange" variant="light" icon={<Icon name="alert" />}>
          <Text size="sm" c="var(--mantine-color-text)">
            Copy it now: the service keeps only a digest, and cannot show it again.
          </Text>
        </Alert>
        <Code block aria-label="Secret" style={{ overflowWrap: "anywhere", whiteSpace: "pre-wrap" }}>
          {made.secret}
        </Code>
        <Group justify="flex-end">
          <CopyButton value={made.secret}>
            {({ copied, copy }) => (
              <Button
                leftSection={<Icon name={copied ? "check" : "copy"} />}
                variant="default"
                onClick={copy}
              >
                {copied ? "Copied" : "Copy the secret"}
              </Button>
            )}
          </CopyButton>
          <Button onClick={onClose}>I have it</Button>
        </Group>
      </Stack>
    </Modal>
  );
}
