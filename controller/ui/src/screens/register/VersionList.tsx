import { Button, Group, Paper, Stack, Text } from "@mantine/core";

import { client } from "@/api/client";
import { useApi } from "@/api/hooks";
import type { components } from "@/api/schema";
import { Asked } from "@/components/Asked";
import { Pager } from "@/components/DataTable";
import { RelativeTime } from "@/components/RelativeTime";
import { Section } from "@/components/Section";
import { formatCounted } from "@/format/format";
import { usePaging } from "@/hooks/paging";
import classes from "@/screens/register/DocumentEditor.module.css";

type Version = components["schemas"]["VersionOut"];

const PAGE = 10;

interface VersionListProps {
  dataflow: string;
  /** Begins the next version with this one; undefined: one may not. */
  onEdit: ((version: number) => void) | undefined;
}

/** Every version so far with what it changed, newest first. */
export function VersionList({ dataflow, onEdit }: VersionListProps) {
  const paging = usePaging("versions");
  const versions = useApi(["versions", dataflow, paging.cursor], () =>
    client.GET("/api/v1/dataflows/{name}/versions", {
      params: { path: { name: dataflow }, query: { limit: PAGE, cursor: paging.cursor } },
    }),
  );
  return (
    <Section title="Versions so far">
      <Asked query={versions}>
        {(page) => (
          <Stack gap="sm">
            {page.items.map((one) => (
              <OneVersion key={one.version} version={one} onEdit={onEdit} />
            ))}
            <Pager
              list="versions"
              shown={formatCounted(page.items.length, "version")}
              first={paging.first}
              back={paging.back}
              next={paging.next(page.cursor)}
            />
          </Stack>
        )}
      </Asked>
    </Section>
  );
}

function OneVersion({
  version,
  onEdit,
}: {
  version: Version;
  onEdit: VersionListProps["onEdit"];
}) {
  const { difference } = version;
  return (
    <Paper withBorder p="md" radius="md">
      <Stack gap="xs">
        <Group justify="space-between">
          <Group gap="sm">
            <Text fw={600}>Version {version.version}</Text>
            <Text size="sm" c="dimmed">
              <RelativeTime at={version.at} both />
            </Text>
            {version.anew.length > 0 && (
              <Text size="sm" c="dimmed">
                changed: {version.anew.join(", ")}
              </Text>
            )}
          </Group>
          {onEdit !== undefined && (
            <Button variant="default" size="compact-sm" onClick={() => onEdit(version.version)}>
              Edit version {version.version}
            </Button>
          )}
        </Group>
        {difference === null || difference.length === 0 ? (
          <Text size="sm" c="dimmed">
            {version.version === 1 ? "The first version." : "No line of the document changed."}
          </Text>
        ) : (
          <pre
            className={classes.difference}
            tabIndex={0}
            aria-label={`What version ${version.version} changed`}
          >
            {difference.map((line, at) => (
              <DifferentLine key={at} line={line} />
            ))}
          </pre>
        )}
      </Stack>
    </Paper>
  );
}

function DifferentLine({ line }: { line: string }) {
  const tone = line.startsWith("+") ? classes.added : line.startsWith("-") ? classes.removed : "";
  return (
    <span className={tone} style={{ display: "block" }}>
      {line}
    </span>
  );
}
