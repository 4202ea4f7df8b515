import { AppShell, Burger, Group, ScrollArea, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useEffect, type MouseEvent } from "react";
import { Link, Outlet, useLocation } from "react-router";

import { useLost } from "@/api/reachable";
import { useSession } from "@/api/session";
import { CommandPalette } from "@/app/CommandPalette";
import { HeaderActions } from "@/app/HeaderActions";
import { HeldSessionNotice } from "@/app/HeldSessionNotice";
import { LeaderNotice } from "@/app/LeaderNotice";
import { LostNotice } from "@/app/LostNotice";
import { Navigation } from "@/app/Navigation";
import { Shortcuts } from "@/app/Shortcuts";
import { SignIn } from "@/app/SignIn";
import { DataflowTabs } from "@/app/DataflowTabs";
import { Loading } from "@/components/Loading";

const MAIN = "main";

/** The frame of all screens: header, navigation, and the screen. */
export function Shell() {
  const session = useSession();
  const lost = useLost();
  const [opened, { toggle, close }] = useDisclosure(false);
  const { pathname } = useLocation();
  useEffect(close, [pathname, close]);

  function skip(event: MouseEvent) {
    event.preventDefault();
    document.getElementById(MAIN)?.focus();
  }

  return (
    <AppShell
      header={{ height: 52 }}
      {...(session.signedIn
        ? { navbar: { width: 216, breakpoint: "sm", collapsed: { mobile: !opened } } }
        : {})}
      padding={{ base: "xs", sm: "md" }}
    >
      <AppShell.Header>
        <a className="skip-link" href={`#${MAIN}`} onClick={skip}>
          Skip to the content
        </a>
        <Group h="100%" px="sm" justify="space-between" wrap="nowrap" gap="xs">
          <Group gap="xs" wrap="nowrap">
            {session.signedIn && (
              <Burger
                opened={opened}
                onClick={toggle}
                hiddenFrom="sm"
                size="sm"
                aria-label={opened ? "Close the navigation" : "Open the navigation"}
                aria-expanded={opened}
              />
            )}
            <Text
              component={Link}
              to="/"
              fw={750}
              size="lg"
              style={{ textDecoration: "none", color: "inherit" }}
              aria-label="CBP, all dataflows"
            >
              CBP
            </Text>
          </Group>
          <HeaderActions />
        </Group>
      </AppShell.Header>
      {session.signedIn && (
        <AppShell.Navbar p="xs">
          <AppShell.Section grow component={ScrollArea}>
            <Navigation />
          </AppShell.Section>
        </AppShell.Navbar>
      )}
      <AppShell.Main id={MAIN} tabIndex={-1} style={{ outline: "none" }}>
        <LostNotice />
        {session.signedIn ? (
          <>
            <HeldSessionNotice />
            <LeaderNotice />
            <DataflowTabs />
            <div className={lost === null ? undefined : "stale"}>
              <Outlet />
            </div>
            <CommandPalette />
            <Shortcuts />
          </>
        ) : session.asking ? (
          <Loading />
        ) : (
          <SignIn />
        )}
      </AppShell.Main>
    </AppShell>
  );
}
