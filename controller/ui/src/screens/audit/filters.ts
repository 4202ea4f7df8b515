/** The periods that one can choose, by the name that the address has. */
export const PERIODS = [
  { value: "", label: "any time", hours: 0 },
  { value: "1h", label: "the last hour", hours: 1 },
  { value: "24h", label: "the last 24 hours", hours: 24 },
  { value: "7d", label: "the last 7 days", hours: 168 },
] as const;

export const OUTCOMES = ["done", "failed", "refused"] as const;
export type Outcome = (typeof OUTCOMES)[number];

/** Return the beginning of a period, to the minute, so that a list is not asked for anew each second. */
export function sinceOf(period: string, now: Date): string | null {
  const hours = PERIODS.find((one) => one.value === period)?.hours ?? 0;
  if (hours === 0) return null;
  const minute = 60_000;
  return new Date(Math.floor((now.getTime() - hours * 60 * minute) / minute) * minute).toISOString();
}

/** Return an outcome that the service knows, or null for anything else that the address says. */
export function outcomeOf(text: string): Outcome | null {
  return OUTCOMES.find((one) => one === text) ?? null;
}

/** Return the screen that shows what an entry was about, or null. */
export function linkOf(entry: { dataflow: string | null; action: string; target: Record<string, string> }): string | null {
  if (entry.action.startsWith("tokens_") || entry.action.startsWith("sessions_")) return "/tokens";
  if (entry.dataflow === null) return null;
  const dataflow = `/dataflows/${encodeURIComponent(entry.dataflow)}`;
  if (entry.action.startsWith("rollbacks_")) return `${dataflow}/recovery`;
  if (entry.action.startsWith("verifications_")) return `${dataflow}/verify`;
  if (entry.action.startsWith("garbage_") || entry.action.startsWith("scrubs_")) return `${dataflow}/housekeeping`;
  return dataflow;
}

/** Return what an entry was about, in words: "clicks, stage count". */
export function subjectOf(entry: { dataflow: string | null; target: Record<string, string> }): string {
  const further = Object.entries(entry.target).map(([name, value]) => `${name} ${value}`);
  return [...(entry.dataflow === null ? [] : [entry.dataflow]), ...further].join(", ");
}
