import { Anchor, Box, Code, List, Table, Text, Title } from "@mantine/core";
import { Link } from "react-router";

import type { components } from "@/api/schema";
import { CodeBlock } from "@/components/CodeBlock";

type Block = components["schemas"]["GuideOut"]["blocks"][number];
type Span = components["schemas"]["Span"];

/** Lines of prose stay short enough to read, also on a wall. */
const PROSE = "80ch";

/** One block of a guide, as elements. */
export function GuideBlock({ block }: { block: Block }) {
  switch (block.kind) {
    case "heading":
      return (
        <Title order={block.level === 2 ? 2 : 3} size={block.level === 2 ? "h4" : "h5"} id={block.anchor} mt="xs">
          <Spans spans={block.spans} />
        </Title>
      );
    case "paragraph":
      return (
        <Text maw={PROSE}>
          <Spans spans={block.spans} />
        </Text>
      );
    case "code":
      return (
        <CodeBlock
          label={WHAT[block.language] ?? block.language}
          text={block.text}
          copied={block.language !== "text"}
        />
      );
    case "list":
      return (
        <List type={block.ordered ? "ordered" : "unordered"} maw={PROSE}>
          {block.items.map((spans, at) => (
            <List.Item key={at}>
              <Spans spans={spans} />
            </List.Item>
          ))}
        </List>
      );
    case "table":
      return (
        <Box style={{ overflowX: "auto" }} tabIndex={0} role="group" aria-label={wordsOf(block.head.flat())}>
          <Table miw={640} verticalSpacing={6}>
            <Table.Thead>
              <Table.Tr>
                {block.head.map((spans, at) => (
                  <Table.Th key={at}>
                    <Spans spans={spans} />
                  </Table.Th>
                ))}
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {block.rows.map((cells, row) => (
                <Table.Tr key={row}>
                  {cells.map((spans, at) => (
                    <Table.Td key={at} style={{ verticalAlign: "top" }}>
                      <Spans spans={spans} />
                    </Table.Td>
                  ))}
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Box>
      );
  }
}

const WHAT: Readonly<Record<string, string>> = {
  bash: "Commands",
  console: "Commands",
  python: "Python",
  text: "Output",
  yaml: "A document",
};

function Spans({ spans }: { spans: readonly Span[] }) {
  return spans.map((span, at) => <Words key={at} span={span} />);
}

function Words({ span }: { span: Span }) {
  switch (span.kind) {
    case "code":
      return <Code style={{ overflowWrap: "anywhere" }}>{span.text}</Code>;
    case "strong":
      return <strong>{span.text}</strong>;
    case "link":
      return (
        <Anchor component={Link} to={`/guides/${span.target}`} underline="always">
          {span.text}
        </Anchor>
      );
    case "text":
      return span.text;
  }
}

function wordsOf(spans: readonly Span[]): string {
  return spans.map(({ text }) => text).join(", ");
}
