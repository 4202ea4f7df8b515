import { Alert, Text } from "@mantine/core";
import type { ReactNode } from "react";

import { Icon } from "@/components/Icon";
import { TONES, type Tone } from "@/components/tones";

/** Something to know first: a title, an icon and a colour that say the same. */
export function Notice({
  tone,
  title,
  children,
}: {
  tone: Tone;
  title: string;
  children: ReactNode;
}) {
  const { color, icon } = TONES[tone];
  const text = { color: "var(--mantine-color-text)" };
  return (
    <Alert
      color={color}
      variant="light"
      icon={<Icon name={icon} />}
      title={title}
      styles={{ title: text, message: text }}
    >
      <Text component="div" size="sm">
        {children}
      </Text>
    </Alert>
  );
}
