import { StateBadge } from "@/components/StateBadge";
import { ToneBadge } from "@/components/ToneBadge";
import type { Freshness } from "@/screens/dataflows/health";

const FRESHNESS = {
  up_to_date: { word: "Up to date", tone: "good" },
  catching_up: { word: "Catching up", tone: "busy" },
  stuck: { word: "Stuck", tone: "warn" },
} as const;

/** What is wrong with a dataflow; if nothing is, whether it is up to date, and what is left. */
export function FreshnessBadge({
  state,
  fresh,
}: {
  state: string;
  /** undefined: the service has not said so yet. */
  fresh: Freshness["dataflows"][number] | undefined;
}) {
  if (state !== "ok" || fresh === undefined) return <StateBadge state={state} />;
  const { word, tone } = FRESHNESS[fresh.state];
  return (
    <span title={fresh.left.join("; ")}>
      <ToneBadge tone={tone}>{word}</ToneBadge>
    </span>
  );
}
