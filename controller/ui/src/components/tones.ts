import type { IconName } from "@/components/Icon";

/** How serious something is: from all is well to it has stopped. */
export type Tone = "good" | "busy" | "warn" | "bad" | "quiet";

/** The colour and the icon of each tone. No two share an icon, since nothing is shown by colour alone. */
export const TONES: Record<Tone, { color: string; icon: IconName }> = {
  good: { color: "teal", icon: "check" },
  busy: { color: "signal", icon: "refresh" },
  warn: { color: "orange", icon: "alert" },
  bad: { color: "red", icon: "error" },
  quiet: { color: "gray", icon: "pause" },
};
