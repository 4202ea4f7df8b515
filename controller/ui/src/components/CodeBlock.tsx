import { ActionIcon, Box, Code, CopyButton, Tooltip } from "@mantine/core";

import { Icon } from "@/components/Icon";

/** Lines as they are, and a button that copies them; without it, lines to be looked at. */
export function CodeBlock({
  label,
  text,
  copied: copies = true,
  height,
}: {
  /** What it is, for those who hear the page. */
  label: string;
  text: string;
  copied?: boolean;
  /** The most that it takes, in pixels; what is longer scrolls. */
  height?: number;
}) {
  return (
    <Box pos="relative" maw="110ch">
      <Code
        block
        tabIndex={0}
        role="group"
        aria-label={label}
        pr={copies ? 44 : undefined}
        mah={height}
        style={{ overflow: "auto" }}
      >
        {text}
      </Code>
      {copies && (
        <CopyButton value={text}>
          {({ copied, copy }) => (
            <Tooltip label={copied ? "Copied" : "Copy"}>
              <ActionIcon variant="subtle" onClick={copy} aria-label={`Copy: ${label}`} pos="absolute" top={4} right={4}>
                <Icon name={copied ? "check" : "copy"} size={16} />
              </ActionIcon>
            </Tooltip>
          )}
        </CopyButton>
      )}
    </Box>
  );
}
