interface SparklineProps {
  values: readonly number[];
  /** Which of them failed; they are drawn with a cross. */
  failed?: readonly boolean[];
  /** What it shows, with its numbers, for those who hear the page. */
  label: string;
  width?: number;
  height?: number;
}

/** A row of bars without axes; its numbers stand beside it, or in its title. */
export function Sparkline({ values, failed = [], label, width = 120, height = 26 }: SparklineProps) {
  const most = Math.max(...values, 1e-9);
  const step = width / Math.max(values.length, 12);
  return (
    <svg width={width} height={height} role="img" aria-label={label} style={{ display: "block" }}>
      <title>{label}</title>
      {values.map((value, at) => {
        const tall = Math.max(2, (value / most) * (height - 2));
        const x = at * step;
        return failed[at] ? (
          <path
            key={at}
            d={`M${x + 1} ${height - 7}l${step - 3} 6m0 -6l${-(step - 3)} 6`}
            stroke="var(--mantine-color-red-filled)"
            strokeWidth={1.6}
          />
        ) : (
          <rect
            key={at}
            x={x}
            y={height - tall}
            width={Math.max(1, step - 1.5)}
            height={tall}
            rx={1}
            fill="var(--mantine-primary-color-filled)"
          />
        );
      })}
    </svg>
  );
}
