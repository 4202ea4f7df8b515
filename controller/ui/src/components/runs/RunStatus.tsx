import { StateBadge } from "@/components/StateBadge";

/** The status of a run; a cancelled or interrupted one says so instead of "failed". */
export function RunStatus({ status, error }: { status: string; error?: Record<string, unknown> | null }) {
  const code = error?.["error_code"];
  if (status === "FAILED" && code === "run_cancelled") return <StateBadge state="cancelled" />;
  return <StateBadge state={status.toLowerCase()} />;
}
