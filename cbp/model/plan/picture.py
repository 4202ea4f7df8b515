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

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from cbp.model.dataflow.dataflow import Dataflow
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
    """One line: a source, a stage that reads, or one output of the stage above it."""

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
        mark = " " if not ends else "◀" if line.stage else "●"
        text = "".join(_CHARACTERS[cell] for cell in cells)
        drawn.append(f"{line.label:<{width}}  {mark}{text}".rstrip())
    return "\n".join(drawn)


def mermaid(dataflow: Dataflow, leaders: Collection[str]) -> str:
    """Return the graph as a Mermaid flowchart; stages that run together share a box."""
    return "\n".join(["flowchart LR", *_written(dataflow, leaders, _MERMAID)])


def dot(dataflow: Dataflow, leaders: Collection[str]) -> str:
    """Return the graph in the DOT language of Graphviz; stages that run together share a box."""
    head = [f"digraph {dataflow.name} {{", "    rankdir=LR;"]
    return "\n".join([*head, *_written(dataflow, leaders, _DOT), "}"])


@dataclass(frozen=True, slots=True)
class _Language:
    """How a language writes the parts of a graph, as templates without indentation.

    `{0}` is a name; an edge has `{begin}`, `{end}` and `{flow}`. A box has a first and a last line.
    In Mermaid, the id of a node differs from its name, since a name can be a keyword.
    """

    source: str
    stage: str
    box: tuple[str, str]
    edge: str
    result: tuple[str, ...]
    id: Callable[[str], str]


_MERMAID = _Language(
    source='{id}(["{0}"])',
    stage='{id}["{0}"]',
    box=('subgraph run_{0}["one run"]', "end"),
    edge='{begin} -->|"{flow}"| {end}',
    result=('{begin} --> {end}[("{0}")]',),
    id=lambda name: f"n_{name.replace('.', '__')}",
)
_DOT = _Language(
    source="{id} [shape=oval];",
    stage="{id} [shape=box];",
    box=('subgraph cluster_{0} {{ label="one run";', "}}"),
    edge='{begin} -> {end} [label="{flow}"];',
    result=("{end} [shape=cylinder];", "{begin} -> {end};"),
    id=lambda name: f'"{name}"',
)


def _written(dataflow: Dataflow, leaders: Collection[str], language: _Language) -> Iterator[str]:
    id_ = language.id
    for name in dataflow.sources:
        yield "    " + language.source.format(name, id=id_(name))
    for name, unit in physical_stages(dataflow, leaders).items():
        stages = [language.stage.format(one, id=id_(one)) for one in unit.names]
        if len(stages) == 1:
            yield f"    {stages[0]}"
            continue
        first, last = (line.format(name) for line in language.box)
        yield from (f"    {first}", *(f"        {stage}" for stage in stages), f"    {last}")
    for edge in (*dataflow.edges(), *dataflow.looks_up()):
        ends = {"begin": id_(edge.begin), "end": id_(edge.end)}
        yield "    " + language.edge.format(**ends, flow=edge.flow.rpartition(".")[2])
    for edge in dataflow.results():
        for line in language.result:
            yield "    " + line.format(edge.flow, begin=id_(edge.begin), end=id_(edge.flow))


def _lines(dataflow: Dataflow, leaders: Collection[str]) -> Iterator[_Line]:
    for source in dataflow.sources:
        yield _Line(source, flow=source)
    for stage in dataflow.upstream_first():
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
