import { Box, Group, Text } from "@mantine/core";
import { Link, matchPath, useLocation } from "react-router";

import { useSession } from "@/api/session";
import { Icon } from "@/components/Icon";
import { SCREENS } from "@/screens/registry";
import classes from "@/app/DataflowTabs.module.css";

/** The screens of the dataflow that the address names, as links in one row. */
export function DataflowTabs() {
  const session = useSession();
  const { pathname } = useLocation();
  const dataflow = matchPath("/dataflows/:dataflow/*", pathname)?.params.dataflow;
  if (dataflow === undefined) return null;
  const screens = SCREENS.filter(
    (screen) => screen.place === "dataflow" && session.can(screen.scope),
  );
  return (
    <Box component="nav" aria-label={`Screens of the dataflow ${dataflow}`} className={classes.bar}>
      <Group gap={0} wrap="nowrap">
        {screens.map((screen) => {
          const to = screen.path.replace(":dataflow", dataflow);
          const active = matchPath(screen.path, pathname) !== null;
          return (
            <Link
              key={screen.path}
              to={to}
              className={classes.tab}
              aria-current={active ? "page" : undefined}
            >
              <Icon name={screen.icon} size={16} />
              <Text span size="sm">
                {screen.title}
              </Text>
            </Link>
          );
        })}
      </Group>
    </Box>
  );
}
