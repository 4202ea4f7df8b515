import { Box, useComputedColorScheme, useMantineTheme } from "@mantine/core";
import { useElementSize } from "@mantine/hooks";
import { useEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

import { formatCompact } from "@/format/format";

interface Line {
  label: string;
  values: readonly (number | null)[];
}

const HEIGHT = 240;

/** Figures over epochs; the table beside it has the same numbers. */
export function EpochChart({ label, epochs, lines }: { label: string; epochs: readonly number[]; lines: readonly Line[] }) {
  const { ref, width } = useElementSize();
  const place = useRef<HTMLDivElement>(null);
  const scheme = useComputedColorScheme("light");
  const theme = useMantineTheme();
  useEffect(() => {
    if (place.current === null || width === 0) return undefined;
    const ink = scheme === "dark" ? theme.colors.gray[4] : theme.colors.gray[7];
    const faint = scheme === "dark" ? theme.colors.dark[4] : theme.colors.gray[3];
    const colors = scheme === "dark" ? ["#74b9ff", "#ffa94d", "#63e6be"] : ["#1864ab", "#d9480f", "#087f5b"];
    const axis = { stroke: ink ?? "gray", grid: { stroke: faint ?? "gray", width: 1 }, ticks: { stroke: faint ?? "gray", width: 1 } };
    const whole = lines.every((line) => line.values.every((one) => one === null || Number.isInteger(one)));
    const chart = new uPlot(
      {
        width,
        height: HEIGHT,
        scales: { x: { time: false } },
        axes: [
          { ...axis, label: "Epoch", labelSize: 20, values: (_, splits) => splits.map((one) => (Number.isInteger(one) ? String(one) : "")) },
          { ...axis, size: 64, values: (_, splits) => splits.map((one) => (whole && !Number.isInteger(one) ? "" : formatCompact(one))) },
        ],
        series: [
          { label: "Epoch" },
          ...lines.map((line, number) => ({
            label: line.label,
            stroke: colors[number % colors.length] ?? "gray",
            width: 2,
            dash: number === 0 ? [] : [6, 2 * number + 2],
            points: { show: epochs.length < 60 },
          })),
        ],
      },
      [[...epochs], ...lines.map((line) => [...line.values])],
      place.current,
    );
    return () => chart.destroy();
  }, [epochs, lines, scheme, theme, width]);
  return (
    <Box ref={ref} role="img" aria-label={label}>
      <div ref={place} aria-hidden="true" />
    </Box>
  );
}
