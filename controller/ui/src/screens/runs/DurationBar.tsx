import { Box, Text } from "@mantine/core";

import { secondsOf, type Run } from "@/components/runs/phases";
import { formatSeconds } from "@/format/format";
import { useNow } from "@/hooks/useNow";

const WIDTH = 40;

/** How long a run took, and a bar that compares it with the slowest one of the page. */
export function DurationBar({ run, slowest }: { run: Run; slowest: number }) {
  const now = useNow();
  const seconds = secondsOf(run, now);
  const share = slowest === 0 ? 0 : Math.min(1, seconds / slowest);
  return (
    <Box style={{ whiteSpace: "nowrap" }}>
      <svg width={WIDTH} height={8} aria-hidden style={{ marginRight: 6 }}>
        <rect
          x={WIDTH * (1 - share)}
          width={Math.max(1, WIDTH * share)}
          height={8}
          rx={2}
          fill="var(--mantine-primary-color-filled)"
          opacity={0.55}
        />
      </svg>
      <Text span size="sm" className="numeric">
        {formatSeconds(seconds)}
        {run.seconds === null ? " …" : ""}
      </Text>
    </Box>
  );
}
