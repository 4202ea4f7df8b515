import type { components } from "@/api/schema";

type Guide = components["schemas"]["GuideSummary"];

/** Return the guides by their groups, both in the order in which the service lists them. Pure. */
export function groupsOf(guides: readonly Guide[]): { group: string; guides: Guide[] }[] {
  const groups = new Map<string, Guide[]>();
  for (const guide of guides) groups.set(guide.group, [...(groups.get(guide.group) ?? []), guide]);
  return [...groups].map(([group, members]) => ({ group, guides: members }));
}
