import { ToneBadge } from "@/components/ToneBadge";
import type { Tone } from "@/components/tones";

/** The word and the tone of every state that the service knows; an unknown one is shown as it is. */
const STATES: Record<string, { word: string; tone: Tone }> = {
  // dataflows
  ok: { word: "Working", tone: "good" },
  retrying: { word: "Retrying", tone: "warn" },
  paused: { word: "Paused", tone: "quiet" },
  stopped: { word: "Stopped", tone: "bad" },
  broken: { word: "Broken", tone: "bad" },
  // stages
  running: { word: "Running", tone: "busy" },
  waiting: { word: "Waiting", tone: "good" },
  set_aside: { word: "Records set aside", tone: "bad" },
  // runs
  intended: { word: "Running", tone: "busy" },
  prepared: { word: "Running", tone: "busy" },
  committed: { word: "Committed", tone: "good" },
  failed: { word: "Failed", tone: "bad" },
  // claims
  claiming: { word: "Claiming", tone: "busy" },
  claimed: { word: "Claimed", tone: "busy" },
  accepted: { word: "Accepted", tone: "good" },
  duplicate: { word: "Duplicate", tone: "quiet" },
  quarantined: { word: "In quarantine", tone: "bad" },
  withdrawn: { word: "Withdrawn", tone: "quiet" },
};

/** A state in a word, with an icon and a colour that say the same. */
export function StateBadge({ state, word }: { state: string; word?: string }) {
  const known = STATES[state.toLowerCase()] ?? { word: state, tone: "quiet" as Tone };
  return <ToneBadge tone={known.tone}>{word ?? known.word}</ToneBadge>;
}
