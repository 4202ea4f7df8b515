import { Box, Table, Text } from "@mantine/core";
import { useElementSize } from "@mantine/hooks";

import classes from "@/components/runs/phases.module.css";
import { barsOf, marksOf, PHASE_WORDS, secondsOf, type Run } from "@/components/runs/phases";
import { formatSeconds } from "@/format/format";
import { useNow } from "@/hooks/useNow";

const ROW = 24;
const LABELS = 88;
const LENGTHS = 76;
const AXIS = 22;

/** One attempt on an axis of its own: a row for each phase; a phase that is under way grows. */
export function Timeline({ run }: { run: Run }) {
  const now = useNow();
  const { ref, width } = useElementSize();
  const bars = barsOf(run, now);
  if (bars.length === 0) {
    return (
      <Text size="sm" c="dimmed">
        No phases are recorded, because an earlier release or another instance executed this run.
      </Text>
    );
  }
  const all = Math.max(secondsOf(run, now), bars.at(-1)?.end ?? 0, 0.001);
  const room = Math.max(80, width - LABELS - LENGTHS);
  const place = (seconds: number) => LABELS + (seconds / all) * room;
  const height = bars.length * ROW + AXIS;
  return (
    <Box>
      <Box ref={ref}>
        <svg
          width="100%"
          height={height}
          role="img"
          aria-label={`Timeline of attempt ${run.attempt}: ${bars
            .map((bar) => `${bar.name} ${formatSeconds(bar.end - bar.begin)}${bar.open ? " so far" : ""}`)
            .join(", ")}`}
        >
          {marksOf(all, room < 320 ? 2 : 5).map((mark) => (
            <g key={mark}>
              <line className={classes.axis} x1={place(mark)} x2={place(mark)} y1={0} y2={height - AXIS + 4} />
              <text className={classes.quiet} x={place(mark)} y={height - 6} textAnchor="middle">
                {formatSeconds(mark)}
              </text>
            </g>
          ))}
          {bars.map((bar, row) => (
            <g key={row}>
              <text className={classes.text} x={0} y={row * ROW + 16}>
                {bar.name}
              </text>
              <rect
                className={`${classes[bar.name] ?? classes.start} ${bar.open ? classes.open : ""}`}
                x={place(bar.begin)}
                y={row * ROW + 4}
                width={Math.max(2, place(bar.end) - place(bar.begin))}
                height={ROW - 8}
                rx={2}
              >
                <title>{`${bar.name}: ${PHASE_WORDS[bar.name] ?? ""}, ${formatSeconds(bar.end - bar.begin)}`}</title>
              </rect>
              <text className={classes.text} x={LABELS + room + 8} y={row * ROW + 16}>
                {formatSeconds(bar.end - bar.begin)}
                {bar.open ? " …" : ""}
              </text>
            </g>
          ))}
        </svg>
      </Box>
      <details>
        <summary>
          <Text span size="xs">
            As a table
          </Text>
        </summary>
        <Table aria-label={`Phases of attempt ${run.attempt}`} verticalSpacing={4} maw={640}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Phase</Table.Th>
              <Table.Th ta="right">After</Table.Th>
              <Table.Th ta="right">Took</Table.Th>
              <Table.Th>Work</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {bars.map((bar, row) => (
              <Table.Tr key={row}>
                <Table.Td>{bar.name}</Table.Td>
                <Table.Td ta="right" className="numeric">{formatSeconds(bar.begin)}</Table.Td>
                <Table.Td ta="right" className="numeric">
                  {bar.open ? `${formatSeconds(bar.end - bar.begin)} so far` : formatSeconds(bar.end - bar.begin)}
                </Table.Td>
                <Table.Td>{PHASE_WORDS[bar.name] ?? ""}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </details>
    </Box>
  );
}
