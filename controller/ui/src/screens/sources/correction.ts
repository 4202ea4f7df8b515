import { formatCount, formatCounted } from "@/format/format";
import type { components } from "@/api/schema";

/** Say what a replacement changes. Pure. */
export function correctionInWords({ records_came, records_gone, groups }: components["schemas"]["ComparedOut"]): string {
  if (records_came === 0 && records_gone === 0) return "Nothing changes: both files have the same records.";
  const records = `${formatCounted(records_came, "record")} would be added, ${formatCount(records_gone)} would be taken back`;
  const touched = Object.entries(groups).map(([stage, number]) => `${formatCounted(number, "group")} of ${stage}`);
  return touched.length === 0 ? `${records}.` : `${records}; ${touched.join(", ")} would be recomputed.`;
}
