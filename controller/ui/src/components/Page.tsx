import { Anchor, Box, Breadcrumbs, Group, Stack, Text, Title } from "@mantine/core";
import { useDocumentTitle } from "@mantine/hooks";
import type { ReactNode } from "react";
import { Link, matchPath, useLocation } from "react-router";

import { CliHint } from "@/components/CliHint";
import type { Words } from "@/format/shell";
import { visible } from "@/visible/visible";

interface Step {
  to: string;
  label: string;
}

interface PageProps {
  title: ReactNode;
  /** The title as text, for the window; needed if `title` is none. */
  titleText?: string;
  /** One sentence under the title. */
  lead?: ReactNode;
  /** From the top down: what one comes from. Below a dataflow, the list and its name come first by themselves. */
  trail?: readonly Step[];
  actions?: ReactNode;
  /** The command that shows the same. */
  cli?: Words;
  /** Use the whole width of a large display. */
  wide?: boolean;
  children: ReactNode;
}

/** Return what is above a screen of a dataflow: the list, and the dataflow itself. */
export function stepsTo(pathname: string): Step[] {
  const below = matchPath("/dataflows/:dataflow/*", pathname);
  if (below === null) return [];
  const { dataflow = "", "*": rest = "" } = below.params;
  const list = { to: "/", label: "Dataflows" };
  return rest === "" ? [list] : [list, { to: `/dataflows/${dataflow}`, label: dataflow }];
}

/** The frame of a screen: trail, title, actions, command. */
export function Page({ title, titleText, lead, trail, actions, cli, wide, children }: PageProps) {
  const text = titleText ?? (typeof title === "string" ? title : "");
  const { pathname } = useLocation();
  const steps = [...stepsTo(pathname), ...(trail ?? [])];
  useDocumentTitle(text === "" ? "CBP" : `${visible(text)} - CBP`);
  return (
    <Stack gap="md" className={wide ? "screen screen-wide" : "screen"}>
      {steps.length > 0 && (
        <Breadcrumbs component="nav" aria-label="Where you are">
          {steps.map(({ to, label }) => (
            <Anchor key={to} component={Link} to={to} size="sm">
              {label}
            </Anchor>
          ))}
        </Breadcrumbs>
      )}
      <Group justify="space-between" align="flex-start" gap="sm">
        <Box style={{ minWidth: 0 }}>
          <Title order={1} size="h2" style={{ overflowWrap: "anywhere" }}>
            {title}
          </Title>
          {lead !== undefined && (
            <Text component="div" size="sm" c="dimmed" mt={4}>
              {lead}
            </Text>
          )}
        </Box>
        {actions !== undefined && <Group gap="xs">{actions}</Group>}
      </Group>
      {children}
      {cli !== undefined && <CliHint words={cli} />}
    </Stack>
  );
}
