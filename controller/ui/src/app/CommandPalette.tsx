import { Spotlight, spotlight, type SpotlightActionGroupData } from "@mantine/spotlight";
import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { matchPath, useLocation, useNavigate } from "react-router";

import { bodyOf, client } from "@/api/client";
import { useSession } from "@/api/session";
import { Icon } from "@/components/Icon";
import { SCREENS } from "@/screens/registry";

/** Goes to a screen, a dataflow or a stage by a few letters of its name. */
export function CommandPalette() {
  const [opened, setOpened] = useState(false);
  const navigate = useNavigate();
  const session = useSession();
  const { pathname } = useLocation();
  const here = matchPath("/dataflows/:dataflow/*", pathname)?.params.dataflow;
  const names = useNames(opened, here);

  const groups = useMemo(() => {
    const allowed = SCREENS.filter((screen) => session.can(screen.scope));
    const go = (to: string) => () => void navigate(to);
    const screens = allowed
      .filter((screen) => !screen.path.includes(":"))
      .map((screen) => ({
        id: screen.path,
        label: screen.title,
        leftSection: <Icon name={screen.icon} />,
        onClick: go(screen.path),
      }));
    const ofDataflows = names.dataflows.flatMap((dataflow) =>
      allowed
        .filter((screen) => screen.place === "dataflow")
        .map((screen, at) => {
          const to = screen.path.replace(":dataflow", dataflow);
          return {
            id: to,
            label: at === 0 ? dataflow : `${dataflow}: ${screen.title}`,
            description: screen.title,
            leftSection: <Icon name={screen.icon} />,
            onClick: go(to),
          };
        }),
    );
    const stages = names.stages.map((stage) => {
      const to = `/dataflows/${here}/stages/${stage}`;
      return {
        id: to,
        label: stage,
        description: `Stage of ${here}`,
        leftSection: <Icon name="stack" />,
        onClick: go(to),
      };
    });
    const all: SpotlightActionGroupData[] = [
      { group: "Screens", actions: screens },
      { group: "Dataflows", actions: ofDataflows },
      { group: "Stages", actions: stages },
    ];
    return all.filter(({ actions }) => actions.length > 0);
  }, [here, names, navigate, session]);

  return (
    <Spotlight
      actions={groups}
      shortcut={["mod + K", "/"]}
      highlightQuery
      scrollable
      limit={12}
      maxHeight={440}
      nothingFound="No match"
      attributes={{ content: { "aria-label": "Go to" } }}
      searchProps={{
        leftSection: <Icon name="search" />,
        placeholder: "A screen, a dataflow or a stage",
        "aria-label": "A screen, a dataflow or a stage",
      }}
      onSpotlightOpen={() => setOpened(true)}
      onSpotlightClose={() => setOpened(false)}
    />
  );
}

/** Return the names that the palette offers; asked for when it opens. */
function useNames(opened: boolean, here: string | undefined) {
  const dataflows = useQuery({
    queryKey: ["dataflows", "names"],
    queryFn: () => bodyOf(client.GET("/api/v1/dataflows")),
    enabled: opened,
  });
  const detail = useQuery({
    queryKey: ["dataflows", here, "names"],
    queryFn: () =>
      bodyOf(client.GET("/api/v1/dataflows/{name}", { params: { path: { name: here ?? "" } } })),
    enabled: opened && here !== undefined,
  });
  return useMemo(
    () => ({
      dataflows: dataflows.data?.items.map(({ name }) => name) ?? [],
      stages: here === undefined ? [] : (detail.data?.stages.map(({ name }) => name) ?? []),
    }),
    [dataflows.data, detail.data, here],
  );
}

/** Open the palette. */
export const openPalette = spotlight.open;
