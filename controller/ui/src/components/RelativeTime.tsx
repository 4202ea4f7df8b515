import { formatAbsolute, formatRelative, UNKNOWN } from "@/format/format";
import { useNow } from "@/hooks/useNow";

/** A moment as its age, with the moment itself as title; `both`: the two in the text. */
export function RelativeTime({
  at,
  both = false,
  never = UNKNOWN,
}: {
  at: string | null | undefined;
  both?: boolean;
  never?: string;
}) {
  const now = useNow();
  if (at === null || at === undefined) return <span>{never}</span>;
  const absolute = formatAbsolute(at);
  const relative = formatRelative(at, now);
  return (
    <time dateTime={at} title={both ? undefined : absolute} style={{ whiteSpace: "nowrap" }}>
      {both ? `${absolute} (${relative})` : relative}
    </time>
  );
}
