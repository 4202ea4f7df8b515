import {
  ActionIcon,
  Button,
  Group,
  Kbd,
  Menu,
  Text,
  Tooltip,
  useComputedColorScheme,
  useMantineColorScheme,
} from "@mantine/core";
import { spotlight } from "@mantine/spotlight";

import { useLive } from "@/api/live";
import { useLost } from "@/api/reachable";
import { useSession } from "@/api/session";
import { showShortcuts } from "@/app/Shortcuts";
import { Icon } from "@/components/Icon";

/** What is at the right of the header. */
export function HeaderActions() {
  const session = useSession();
  return (
    <Group gap={6} wrap="nowrap">
      {session.signedIn && (
        <>
          <Button
            variant="default"
            size="xs"
            visibleFrom="sm"
            leftSection={<Icon name="search" size={14} />}
            rightSection={<Kbd size="xs">Ctrl K</Kbd>}
            onClick={spotlight.open}
          >
            Go to
          </Button>
          <ActionIcon
            variant="default"
            size="md"
            hiddenFrom="sm"
            aria-label="Go to a screen, a dataflow or a stage"
            onClick={spotlight.open}
          >
            <Icon name="search" size={16} />
          </ActionIcon>
          <LiveSwitch />
        </>
      )}
      <SchemeSwitch />
      {session.signedIn && (
        <>
          <Tooltip label="Keyboard shortcuts (?)">
            <ActionIcon
              variant="default"
              size="md"
              aria-label="Keyboard shortcuts"
              visibleFrom="sm"
              onClick={showShortcuts}
            >
              <Icon name="help" size={16} />
            </ActionIcon>
          </Tooltip>
          <SessionMenu />
        </>
      )}
    </Group>
  );
}

const LABELS = {
  live: { text: "Live", tip: "Live updates are on; press to pause them" },
  reconnecting: { text: "Reconnecting", tip: "The connection was lost; the page reconnects by itself" },
  polling: { text: "Polling", tip: "There is no event stream; the page polls every 5 seconds" },
  paused: { text: "Paused", tip: "Live updates are paused; press to resume them" },
} as const;

function LiveSwitch() {
  const { live, state, pausedSince, toggle } = useLive();
  const lost = useLost();
  const { text, tip } = LABELS[live && lost !== null ? "reconnecting" : state];
  const since = pausedSince === null ? "" : ` since ${formatClock(pausedSince)}`;
  return (
    <Tooltip label={tip}>
      <Button
        variant={live ? "default" : "filled"}
        color="gray.8"
        size="xs"
        aria-pressed={!live}
        aria-label={live ? `${text}: pause updates` : "Paused: resume updates"}
        onClick={toggle}
        leftSection={<Icon name={live ? "pause" : "play"} size={14} />}
      >
        {`${text}${since}`}
      </Button>
    </Tooltip>
  );
}

function formatClock(at: Date): string {
  return at.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

function SchemeSwitch() {
  const { setColorScheme } = useMantineColorScheme();
  const scheme = useComputedColorScheme("light");
  const next = scheme === "light" ? "dark" : "light";
  return (
    <Tooltip label={`Use ${next} colours`}>
      <ActionIcon
        variant="default"
        size="md"
        aria-label={`Use ${next} colours`}
        onClick={() => setColorScheme(next)}
      >
        <Icon name={scheme === "light" ? "moon" : "sun"} size={16} />
      </ActionIcon>
    </Tooltip>
  );
}

function SessionMenu() {
  const session = useSession();
  return (
    <Menu position="bottom-end" withinPortal>
      <Menu.Target>
        <ActionIcon variant="default" size="md" aria-label="Who is signed in">
          <Icon name="user" size={16} />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>
          <Text span size="xs">
            Signed in: {session.name}, scope {session.scope}
          </Text>
        </Menu.Label>
        <Menu.Item leftSection={<Icon name="close" size={14} />} onClick={session.signOut}>
          Sign out
        </Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}
