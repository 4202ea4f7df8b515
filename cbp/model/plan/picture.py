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
one column share no line (tests/cbp/model/plan/test_picture.py).
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.graph.cycles import components, predecessors
from cbp.model.graph.drawing import FlowEdge
from cbp.model.plan.fusion import physical_stages

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
        flow: The flow that begins here; `""` if there is none.
        stage: The stage that reads here; `""` if there is none.
    """

    label: str
    flow: str = ""
    stage: str = ""


def picture(dataflow: Dataflow, leaders: Collection[str]) -> str:
    """Draw the graph for a terminal; a stage that follows a leader has a `+` before its name."""
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
    """Return the graph as a Mermaid flowchart; stages that run together share a box."""
    return "\n".join(["flowchart LR", *_written(dataflow, leaders, _Mermaid())])


def dot(dataflow: Dataflow, leaders: Collection[str]) -> str:
    """Return the graph in the DOT language of Graphviz; stages that run together share a box."""
    head = [f"digraph {dataflow.name} {{", "    rankdir=LR;"]
    return "\n".join([*head, *_written(dataflow, leaders, _Dot()), "}"])


class _Language(Protocol):
    """How a language writes the parts of a graph, each in lines without indentation."""

    def source(self, name: str) -> str: ...

    def stage(self, name: str) -> str: ...

    def box(self, leader: str) -> tuple[str, str]:
        """Return the first and the last line of a box around stages."""
        ...

    def edge(self, edge: FlowEdge) -> str: ...

    def result(self, edge: FlowEdge) -> list[str]: ...


class _Mermaid:
    """Nodes have their own ids, since the name of a stage can be a keyword of Mermaid."""

    def source(self, name: str) -> str:
        return f'{_id(name)}(["{name}"])'

    def stage(self, name: str) -> str:
        return f'{_id(name)}["{name}"]'

    def box(self, leader: str) -> tuple[str, str]:
        return f'subgraph run_{leader}["one run"]', "end"

    def edge(self, edge: FlowEdge) -> str:
        return f'{_id(edge.begin)} -->|"{_short(edge.flow)}"| {_id(edge.end)}'

    def result(self, edge: FlowEdge) -> list[str]:
        return [f'{_id(edge.begin)} --> {_id(edge.flow)}[("{edge.flow}")]']


class _Dot:
    """The language of Graphviz."""

    def source(self, name: str) -> str:
        return f"{_quoted(name)} [shape=oval];"

    def stage(self, name: str) -> str:
        return f"{_quoted(name)} [shape=box];"

    def box(self, leader: str) -> tuple[str, str]:
        return f'subgraph cluster_{leader} {{ label="one run";', "}"

    def edge(self, edge: FlowEdge) -> str:
        label = _quoted(_short(edge.flow))
        return f"{_quoted(edge.begin)} -> {_quoted(edge.end)} [label={label}];"

    def result(self, edge: FlowEdge) -> list[str]:
        flow = _quoted(edge.flow)
        return [f"{flow} [shape=cylinder];", f"{_quoted(edge.begin)} -> {flow};"]


def _written(dataflow: Dataflow, leaders: Collection[str], language: _Language) -> Iterator[str]:
    """Yield the lines of a graph: sources, stages in boxes, edges, results."""
    for name in dataflow.sources:
        yield f"    {language.source(name)}"
    for name, unit in physical_stages(dataflow, leaders).items():
        stages = [language.stage(member) for member in unit.names]
        if len(stages) == 1:
            yield f"    {stages[0]}"
            continue
        first, last = language.box(name)
        yield f"    {first}"
        yield from (f"        {stage}" for stage in stages)
        yield f"    {last}"
    for edge in (*dataflow.edges(), *dataflow.looks_up()):
        yield f"    {language.edge(edge)}"
    for result in dataflow.results():
        yield from (f"    {line}" for line in language.result(result))


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


def _short(flow: str) -> str:
    return flow.rpartition(".")[2]


def _id(name: str) -> str:
    """Return an id for a node that is not a keyword of Mermaid."""
    return f"n_{name.replace('.', '__')}"


def _quoted(text: str) -> str:
    return f'"{text}"'
