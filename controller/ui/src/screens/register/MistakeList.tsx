import { Anchor, Code, List, Text } from "@mantine/core";

import { Notice } from "@/components/Notice";
import { formatCounted } from "@/format/format";
import type { Mistake } from "@/screens/register/editing";

/** Every mistake with its place; a click puts the cursor there. */
export function MistakeList({
  mistakes,
  onOpen,
}: {
  mistakes: readonly Mistake[];
  onOpen: (mistake: Mistake) => void;
}) {
  return (
    <Notice tone="bad" title={formatCounted(mistakes.length, "mistake")}>
      <List size="sm" spacing={4}>
        {mistakes.map((mistake, at) => (
          <List.Item key={at}>
            {mistake.line > 0 && (
              <Anchor component="button" type="button" size="sm" onClick={() => onOpen(mistake)}>
                Line {mistake.line}, column {mistake.column}
              </Anchor>
            )}{" "}
            <Text span size="sm" style={{ overflowWrap: "anywhere" }}>
              <strong>{mistake.where}</strong>: {mistake.message}
            </Text>{" "}
            <Code>{mistake.code}</Code>
          </List.Item>
        ))}
      </List>
    </Notice>
  );
}
