"""Draw a dataflow's graph: for the terminal, as Mermaid, or as DOT; pure.

In the terminal every flow has a line of its own, from which a rail leads to the stages that
read it. A rail that leads upwards closes a cycle:

    pages          ●┐
    extract_links  ◀┘
      links        ●┐
      crawled      ●│┐
    count          ◀┘│
      counts       ●┐│
    merge          ◀┴┘

Guaranteed: the same graph gives the same text. Every flow with readers has one rail, and rails in
one column share no line (tests/cbp/model/dataflow/test_picture.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain

from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.dataflow.fusion import physical_stages
from cbp.model.dataflow.graph import components, predecessors

__all__ = ["dot", "mermaid", "picture"]

_NORTH, _EAST, _SOUTH, _WEST = 1, 2, 4, 8
_CHARACTERS = {
    0: " ",
    _NORTH: "│",
    _SOUTH: "│",
    _WEST: "─",
    _EAST: "─",
    _NORTH | _SOUTH: "│",
    _EAST | _WEST: "─",
    _WEST | _SOUTH: "┐",
    _WEST | _NORTH: "┘",
    _WEST | _NORTH | _SOUTH: "┤",
    _EAST | _WEST | _SOUTH: "┬",
    _EAST | _WEST | _NORTH: "┴",
    _EAST | _WEST | _NORTH | _SOUTH: "┼",
}


@dataclass(frozen=True, slots=True)
class _Line:
    """One line: a source, a stage, or one output of the stage above it.

    Attributes:
        flow: The flow that begins here; `""`: none.
        stage: The stage that reads here; `""`: none.
    """

    label: str
    flow: str = ""
    stage: str = ""


def picture(dataflow: Dataflow, leaders: Collection[str]) -> str:
    """Draw the graph for a terminal; a stage that follows a leader has a `+` before its name.

    Args:
        dataflow: A checked dataflow.
        leaders: The stages that lead physical stages.
    """
    lines = list(_lines(dataflow, leaders))
    rails = _rails(dataflow, lines)
    width = max(len(line.label) for line in lines)
    columns = max((column for column, _ in rails), default=-1) + 1
    drawn = []
    for at, line in enumerate(lines):
        cells = [0] * columns
        ends = []
        for column, rows in rails:
            low, high = rows[0], rows[-1]
            if low <= at <= high:
                cells[column] |= (_NORTH if at > low else 0) | (_SOUTH if at < high else 0)
            if at in rows:
                ends.append(column)
        for column in ends:
            cells[column] |= _WEST
            for left in range(column):
                # A rail that is only crossed keeps its line; a corner means that a rail ends here.
                if left in ends or not cells[left]:
                    cells[left] |= _EAST | _WEST
        mark = " "
        if ends:
            mark = "◀" if line.stage else "●"
        text = "".join(_CHARACTERS[cell] for cell in cells)
        drawn.append(f"{line.label:<{width}}  {mark}{text}".rstrip())
    return "\n".join(drawn)


def mermaid(dataflow: Dataflow, leaders: Collection[str]) -> str:
    """Return the graph as a Mermaid flowchart; stages that run together share a box.

    Nodes have their own ids, since the name of a stage can be a keyword of Mermaid.
    """
    lines = ["flowchart LR"]
    lines += [f'    {_id(name)}(["{name}"])' for name in dataflow.sources]
    for name, unit in physical_stages(dataflow, leaders).items():
        nodes = [f'{_id(member)}["{member}"]' for member in unit.names]
        if len(nodes) == 1:
            lines.append(f"    {nodes[0]}")
            continue
        lines.append(f'    subgraph run_{name}["one run"]')
        lines += [f"        {node}" for node in nodes]
        lines.append("    end")
    for flow, writer, reader in _edges(dataflow):
        lines.append(f'    {_id(writer)} -->|"{_short(flow)}"| {_id(reader)}')
    for flow, writer in _results(dataflow):
        lines.append(f'    {_id(writer)} --> {_id(flow)}[("{flow}")]')
    return "\n".join(lines)


def dot(dataflow: Dataflow, leaders: Collection[str]) -> str:
    """Return the graph in the DOT language of Graphviz."""
    lines = [f"digraph {dataflow.name} {{", "    rankdir=LR;"]
    lines += [f"    {_quoted(name)} [shape=oval];" for name in dataflow.sources]
    for name, unit in physical_stages(dataflow, leaders).items():
        nodes = [f"{_quoted(member)} [shape=box];" for member in unit.names]
        if len(nodes) == 1:
            lines.append(f"    {nodes[0]}")
            continue
        lines.append(f'    subgraph cluster_{name} {{ label="one run";')
        lines += [f"        {node}" for node in nodes]
        lines.append("    }")
    for flow, writer, reader in _edges(dataflow):
        lines.append(f"    {_quoted(writer)} -> {_quoted(reader)} [label={_quoted(_short(flow))}];")
    for flow, writer in _results(dataflow):
        lines.append(f"    {_quoted(flow)} [shape=cylinder];")
        lines.append(f"    {_quoted(writer)} -> {_quoted(flow)};")
    return "\n".join([*lines, "}"])


def _lines(dataflow: Dataflow, leaders: Collection[str]) -> Iterator[_Line]:
    for source in dataflow.sources:
        yield _Line(source, flow=source)
    order = chain.from_iterable(components(predecessors(dataflow.wiring())))
    for stage in order:
        beside = "" if stage in leaders else "+ "
        yield _Line(f"{beside}{stage}", stage=stage)
        for output in dataflow.stages[stage].translator.outputs:
            yield _Line(f"    {output.name}", flow=f"{stage}.{output.name}")


def _rails(dataflow: Dataflow, lines: list[_Line]) -> list[tuple[int, list[int]]]:
    """Return the rails: the column of each, and the lines that it touches, ascending."""
    stages = {line.stage: at for at, line in enumerate(lines) if line.stage}
    wanted = []
    for at, line in enumerate(lines):
        readers = {stages[stage] for stage, _ in dataflow.consumers(line.flow)} if line.flow else ()
        if readers:
            wanted.append(sorted({at, *readers}))
    # Short rails go inside, for fewer crossings. A column can be reused below a rail's last line.
    placed: list[tuple[int, list[int]]] = []
    for rows in sorted(wanted, key=lambda rows: (rows[-1] - rows[0], rows)):
        used_columns = {
            column
            for column, others in placed
            if not (others[-1] < rows[0] or rows[-1] < others[0])
        }
        column = next(c for c in range(len(wanted)) if c not in used_columns)
        placed.append((column, rows))
    return placed


def _edges(dataflow: Dataflow) -> Iterator[tuple[str, str, str]]:
    """Yield flow, writer and reader of every edge, once."""
    for flow in dataflow.flows():
        for reader in dict.fromkeys(stage for stage, _ in dataflow.consumers(flow)):
            yield flow, flow.partition(".")[0], reader


def _results(dataflow: Dataflow) -> Iterator[tuple[str, str]]:
    """Yield the flows without readers, each with the stage that writes it."""
    for flow in dataflow.flows():
        writer, _, output = flow.partition(".")
        if output and not any(dataflow.consumers(flow)):
            yield flow, writer


def _short(flow: str) -> str:
    return flow.rpartition(".")[2]


def _id(name: str) -> str:
    """Return an id for a node that is no keyword of Mermaid."""
    return f"n_{name.replace('.', '__')}"


def _quoted(text: str) -> str:
    return f'"{text}"'
