import { Anchor, Box, Group, SegmentedControl, Table, Text } from "@mantine/core";
import { useElementSize } from "@mantine/hooks";
import { Link, useNavigate } from "react-router";

import classes from "@/components/runs/phases.module.css";
import { marksOf, PHASES, PHASE_WORDS, type Run } from "@/components/runs/phases";
import { formatCompact, formatSeconds, formatShare, UNKNOWN } from "@/format/format";
import { useUrlState } from "@/hooks/urlState";
import { indexHitRate, trendOf, type TrendBar } from "@/screens/stage/trend";

const HEIGHT = 180;
const AXIS = 64;

/** How long the latest runs took, by phase, and what they touched; as a picture or as a table. */
export function Trend({ runs, stage }: { runs: readonly Run[]; stage: string }) {
  const [form, setForm] = useUrlState("trend", "chart");
  const bars = trendOf(runs, stage);
  if (bars.length === 0) {
    return <Text size="sm">No run has committed yet. Each committed run will be shown as a bar.</Text>;
  }
  const rate = indexHitRate(runs);
  const groups = bars.map((bar) => bar.groups ?? 0);
  return (
    <Box>
      <Group justify="space-between" mb="xs">
        <Group gap="md">
          <Text size="sm" component="span">
            Index hit rate:{" "}
            <b>{rate === undefined ? "no look-ups" : formatShare(Math.round(rate * 1000), 1000)}</b>
          </Text>
          <Text size="sm" component="span">
            Groups touched per run: <b>{formatCompact(groups.reduce((a, b) => a + b, 0) / groups.length)}</b> on
            average, at most <b>{formatCompact(Math.max(...groups))}</b>
          </Text>
        </Group>
        <SegmentedControl
          size="xs"
          aria-label="Form of the trend"
          data={[
            { value: "chart", label: "Chart" },
            { value: "table", label: "Table" },
          ]}
          value={form}
          onChange={setForm}
        />
      </Group>
      {form === "table" ? <TrendTable bars={bars} /> : <TrendChart bars={bars} />}
    </Box>
  );
}

function TrendChart({ bars }: { bars: readonly TrendBar[] }) {
  const navigate = useNavigate();
  const { ref, width } = useElementSize();
  const most = Math.max(0.001, ...bars.map((bar) => bar.seconds));
  const room = Math.max(100, width - AXIS);
  const step = Math.min(40, room / bars.length);
  const up = (seconds: number) => (seconds / most) * (HEIGHT - 24);
  return (
    <Box ref={ref}>
      <svg
        width="100%"
        height={HEIGHT}
        role="img"
        aria-label={`Run times of ${bars.length} epochs, from ${formatSeconds(bars[0]?.seconds)} to ${formatSeconds(bars.at(-1)?.seconds)}; the table has each of them`}
      >
        {marksOf(most, 3).map((mark) => (
          <g key={mark}>
            <line className={classes.axis} x1={AXIS - 6} x2={AXIS + room} y1={HEIGHT - 20 - up(mark)} y2={HEIGHT - 20 - up(mark)} />
            <text className={classes.quiet} x={AXIS - 10} y={HEIGHT - 16 - up(mark)} textAnchor="end">
              {formatSeconds(mark)}
            </text>
          </g>
        ))}
        {bars.map((bar, at) => {
          let base = HEIGHT - 20;
          const x = AXIS + at * step;
          return (
            <g key={bar.run.id} onClick={() => void navigate(`/runs/${bar.run.id}`)} style={{ cursor: "pointer" }}>
              <title>
                {`epoch ${bar.run.epoch}: ${formatSeconds(bar.seconds)} (${bar.parts
                  .map((part) => `${part.name} ${formatSeconds(part.seconds)}`)
                  .join(", ")})`}
              </title>
              <rect x={x} y={0} width={Math.max(1, step - 1)} height={HEIGHT - 20} fill="transparent" />
              {bar.parts.map((part) => {
                const height = up(part.seconds);
                base -= height;
                return (
                  <rect
                    key={part.name}
                    className={classes[part.name]}
                    x={x}
                    y={base}
                    width={Math.max(1, step - 2)}
                    height={height}
                  />
                );
              })}
            </g>
          );
        })}
        <text className={classes.quiet} x={AXIS} y={HEIGHT - 5}>
          epoch {bars[0]?.run.epoch}
        </text>
        {bars.length > 1 && step * bars.length > 160 && (
          <text className={classes.quiet} x={AXIS + step * bars.length} y={HEIGHT - 5} textAnchor="end">
            epoch {bars.at(-1)?.run.epoch}
          </text>
        )}
      </svg>
      <Group gap="md" mt={4} component="ul" style={{ listStyle: "none", padding: 0, margin: 0 }} aria-label="Phases">
        {PHASES.filter((name) => bars.some((bar) => bar.parts.some((part) => part.name === name))).map((name) => (
          <Group key={name} gap={6} component="li" title={PHASE_WORDS[name]}>
            <svg width={12} height={12} className={classes.swatch} aria-hidden>
              <rect width={12} height={12} rx={2} className={classes[name]} />
            </svg>
            <Text span size="xs">
              {name}
            </Text>
          </Group>
        ))}
      </Group>
    </Box>
  );
}

function TrendTable({ bars }: { bars: readonly TrendBar[] }) {
  return (
    <Box style={{ overflowX: "auto" }} tabIndex={0} role="region" aria-label="Run times">
      <Table verticalSpacing={3} aria-label="Run times" miw={720}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Epoch</Table.Th>
            <Table.Th ta="right">Took</Table.Th>
            {PHASES.map((name) => (
              <Table.Th key={name} ta="right">
                {name}
              </Table.Th>
            ))}
            <Table.Th ta="right">Records in</Table.Th>
            <Table.Th ta="right">Groups</Table.Th>
            <Table.Th ta="right">By index</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {[...bars].reverse().map((bar) => (
            <Table.Tr key={bar.run.id}>
              <Table.Td>
                <Anchor component={Link} to={`/runs/${bar.run.id}`} size="sm">
                  {bar.run.epoch}
                </Anchor>
              </Table.Td>
              <Table.Td ta="right" className="numeric">{formatSeconds(bar.seconds)}</Table.Td>
              {PHASES.map((name) => (
                <Table.Td key={name} ta="right" className="numeric">
                  {formatSeconds(bar.parts.find((part) => part.name === name)?.seconds)}
                </Table.Td>
              ))}
              <Table.Td ta="right" className="numeric">{formatCompact(bar.recordsIn)}</Table.Td>
              <Table.Td ta="right" className="numeric">{formatCompact(bar.groups)}</Table.Td>
              <Table.Td ta="right" className="numeric">
                {bar.indexHits === undefined ? UNKNOWN : formatShare(bar.indexHits, 1)}
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Box>
  );
}
