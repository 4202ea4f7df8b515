import { Button, Group, Stack, Text, Tooltip } from "@mantine/core";
import { Link } from "react-router";

import { useLost } from "@/api/reachable";
import { useSession } from "@/api/session";
import { Icon } from "@/components/Icon";
import { StatusBox } from "@/components/StatusBox";
import { useNow } from "@/hooks/useNow";
import { RESUMES, RETRIES, useDataflowActions } from "@/screens/dataflows/actions";
import {
  headline,
  troublesIn,
  troublesOf,
  type Dataflow,
  type Freshness,
  type Trouble,
} from "@/screens/dataflows/health";

const TONES = { up_to_date: "good", catching_up: "busy", stuck: "warn" } as const;

/** The one sentence on top: everything is up to date, or what is not, why, and what helps. */
export function Headline({
  dataflows,
  freshness,
}: {
  dataflows: readonly Dataflow[];
  freshness: Freshness;
}) {
  const now = useNow();
  const troubles = troublesOf(dataflows, now);
  const loudest = troubles.find(({ severity }) => severity !== "quiet")?.severity;
  const tone = loudest === "bad" || loudest === "warn" ? loudest : TONES[freshness.state];
  const lost = useLost();
  const title = headline(freshness, troubles);
  return (
    <StatusBox
      tone={lost === null ? tone : "quiet"}
      title={lost === null ? title : `Currently unknown. Last known: ${title}`}
      label="State of all dataflows"
    >
      <TroubleList troubles={troubles} />
    </StatusBox>
  );
}

/** What needs attention on the page of one dataflow; nothing if all is well. */
export function TroubleBox({ dataflow, stages }: { dataflow: Dataflow; stages: Parameters<typeof troublesIn>[1] }) {
  const troubles = troublesIn(dataflow, stages, useNow());
  const tone = troubles.some(({ severity }) => severity === "bad") ? "bad" : "warn";
  if (troubles.length === 0) return null;
  return (
    <StatusBox tone={tone} title="Problems that need attention" label="Trouble">
      <TroubleList troubles={troubles} here={`/dataflows/${dataflow.name}`} />
    </StatusBox>
  );
}

/** Troubles with what helps. `here`: the screen that shows them needs no link to itself. */
function TroubleList({ troubles, here = "" }: { troubles: readonly Trouble[]; here?: string }) {
  if (troubles.length === 0) return null;
  return (
    <Stack gap="sm" mt="xs">
      {troubles.map((trouble) => (
        <TroubleLine key={`${trouble.to} ${trouble.remedy} ${trouble.why}`} trouble={trouble} linked={trouble.to !== here} />
      ))}
    </Stack>
  );
}

function TroubleLine({ trouble, linked }: { trouble: Trouble; linked: boolean }) {
  const { can } = useSession();
  const { resume, resumeStage, retry } = useDataflowActions();
  const { dataflow, stage, to } = trouble;
  return (
    <Group justify="space-between" gap="sm" align="flex-start">
      <div style={{ flex: "1 1 260px", minWidth: 0 }}>
        <Text size="sm" fw={600} style={{ overflowWrap: "anywhere" }}>
          {trouble.what}.
        </Text>
        {trouble.why !== "" && (
          <Text size="sm" lineClamp={3} style={{ overflowWrap: "anywhere" }}>
            {trouble.why}
          </Text>
        )}
      </div>
      <Group gap="xs">
        {trouble.remedy === "retry" && can("operator") && (
          <Tooltip label={RETRIES}>
            <Button
              size="xs"
              variant="default"
              leftSection={<Icon name="refresh" size={14} />}
              loading={retry.isPending}
              onClick={() => retry.mutate({ dataflow, stage })}
            >
              Retry now
            </Button>
          </Tooltip>
        )}
        {trouble.remedy === "resume" && can("operator") && (
          <Tooltip label={RESUMES}>
            <Button
              size="xs"
              variant="default"
              leftSection={<Icon name="play" size={14} />}
              loading={resume.isPending || resumeStage.isPending}
              onClick={() => (stage === "" ? resume.mutate(dataflow) : resumeStage.mutate({ dataflow, stage }))}
            >
              Resume
            </Button>
          </Tooltip>
        )}
        {linked && (
          <Button size="xs" variant="default" component={Link} to={to}>
            {trouble.remedy === "decide" ? "Decide" : "Investigate"}
          </Button>
        )}
      </Group>
    </Group>
  );
}
