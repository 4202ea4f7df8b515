import { Anchor, Stack, Text } from "@mantine/core";
import { Link } from "react-router";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import { Asked } from "@/components/Asked";
import { Page } from "@/components/Page";
import { Section } from "@/components/Section";
import { groupsOf } from "@/screens/guides/groups";

/** What one may want to do, and the guide that says how. */
export default function GuidesScreen() {
  const guides = useApi(["guides"], () => client.GET("/api/v1/guides"), { follow: false });
  return (
    <Page
      title="Guides"
      lead="Each guide explains one task, command by command. The guides are part of the installed package, so they describe this version and need no network."
      cli={["cbp", "help"]}
    >
      <Asked query={guides} rows={8}>
        {({ items }) => (
          <Stack gap="xl">
            {groupsOf(items).map(({ group, guides: members }) => (
              <Section key={group} title={group}>
                <Stack gap="sm" component="ul" style={{ listStyle: "none", margin: 0, padding: 0 }}>
                  {members.map((guide) => (
                    <li key={guide.name}>
                      <Anchor component={Link} to={`/guides/${guide.name}`} fw={600}>
                        {guide.title}
                      </Anchor>
                      <Text size="sm" c="dimmed" maw="80ch">
                        {guide.about}
                      </Text>
                    </li>
                  ))}
                </Stack>
              </Section>
            ))}
          </Stack>
        )}
      </Asked>
    </Page>
  );
}
