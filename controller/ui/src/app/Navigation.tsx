import { NavLink, Stack, Text } from "@mantine/core";
import { Link, useLocation } from "react-router";

import { useSession } from "@/api/session";
import { Icon } from "@/components/Icon";
import { SCREENS, type Place } from "@/screens/registry";

const GROUPS: readonly { place: Place; title: string }[] = [
  { place: "operate", title: "Operate" },
  { place: "administer", title: "Administer" },
];

/** The links to the screens that belong to no dataflow. */
export function Navigation() {
  const session = useSession();
  const { pathname } = useLocation();
  return (
    <Stack gap="md" component="div">
      {GROUPS.map(({ place, title }) => {
        const screens = SCREENS.filter(
          (screen) => screen.place === place && session.can(screen.scope),
        );
        if (screens.length === 0) return null;
        return (
          <nav key={place} aria-label={title}>
            <Text size="xs" fw={600} c="dimmed" px="xs" mb={4}>
              {title}
            </Text>
            {screens.map((screen) => (
              <NavLink
                key={screen.path}
                component={Link}
                to={screen.path}
                label={screen.title}
                leftSection={<Icon name={screen.icon} />}
                active={isAt(pathname, screen.path)}
                aria-current={isAt(pathname, screen.path) ? "page" : undefined}
                variant="light"
              />
            ))}
          </nav>
        );
      })}
    </Stack>
  );
}

/** Tell whether an address belongs to a link of the navigation; dataflows belong to their list. */
export function isAt(pathname: string, path: string): boolean {
  if (path === "/") return pathname === "/" || pathname.startsWith("/dataflows/");
  return pathname === path || pathname.startsWith(`${path}/`);
}
