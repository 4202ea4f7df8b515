import type { components } from "@/api/schema";
import { ToneBadge } from "@/components/ToneBadge";
import { verdict } from "@/screens/verify/words";

/** How a verification ended, as a word with an icon. */
export function Verdict({ status }: { status: components["schemas"]["VerificationOut"]["status"] }) {
  const { word, tone } = verdict(status);
  return <ToneBadge tone={tone}>{word}</ToneBadge>;
}
