import { ActionIcon, Code, CopyButton, Group, Text, Tooltip } from "@mantine/core";

import { Icon } from "@/components/Icon";
import { shellCommand, type Words } from "@/format/shell";

/** The command that shows or does the same as the screen, quoted for a shell. */
export function CliHint({ words }: { words: Words }) {
  const command = shellCommand(words);
  return (
    <Group gap={6} wrap="nowrap" role="group" aria-label="The same on the command line">
      <Text size="xs" c="dimmed" style={{ display: "inline-flex" }}>
        <Icon name="terminal" size={16} label="Command line" />
      </Text>
      <Code style={{ overflowWrap: "anywhere" }}>{command}</Code>
      <CopyButton value={command}>
        {({ copied, copy }) => (
          <Tooltip label={copied ? "Copied" : "Copy the command"}>
            <ActionIcon variant="subtle" size="sm" onClick={copy} aria-label="Copy the command">
              <Icon name={copied ? "check" : "copy"} size={14} />
            </ActionIcon>
          </Tooltip>
        )}
      </CopyButton>
    </Group>
  );
}
