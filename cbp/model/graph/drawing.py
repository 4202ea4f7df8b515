"""Draw a dataflow's graph as SVG, for notebooks, reports and other HTML; pure.

Sources are rounded boxes, stages are boxes with the name of their translator, and flows that no
stage reads (the results) are boxes with a dashed border. An edge has the name of its flow. An edge
that closes a cycle, such as a loopback, leads back below the boxes.

Guaranteed: the same graph gives the same text; names are escaped
(tests/cbp/model/graph/test_drawing.py). Colours are those of the text around the picture, so it
can be read on light and on dark paper.

`Layout` places the nodes in layers, from left to right. A node is in a layer after all nodes that
feed it; an edge that closes a cycle leads back and does not count for this. An edge that passes
over a layer gets a lane of its own there, so that it crosses no box.

Invariants (tests/cbp/model/graph/test_layered_layout.py): every node has one place, no two
places overlap, every edge that leads forward rises by at least one layer, and the same graph has
the same layout.

Source: Sugiyama, Tagawa, Toda, "Methods for Visual Understanding of Hierarchical System Structures"
(1981), with medians of neighbours for the order. The graph on the page has a layout of its own:
controller/ui/src/screens/graph/layout.ts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from statistics import median

from cbp.model.graph.cycles import components

_CHARACTER, _MARGIN = 7.3, 24
_NODE_HEIGHT, _ROW, _LANE_ROW, _BACK_ROW = 40, 64, 22, 26
_GAP_MIN, _LABEL_CHARACTER = 56, 5.6
_WIDTH_MIN, _TEXT_MAX = 72, 32


class Drawing(str):
    """An SVG picture, as text; a notebook shows it as a picture.

    `Path("flow.svg").write_text(drawing)` saves it.
    """

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)


@dataclass(frozen=True, slots=True)
class Node:
    """A box of the picture.

    Attributes:
        kind: `source`, `stage` or `result`.
        detail: A second line; `""` if there is none.
    """

    name: str
    kind: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class FlowEdge:
    """An arrow from the node that writes a flow to one that reads it."""

    begin: str
    end: str
    flow: str


@dataclass(frozen=True, slots=True)
class _Box:
    x: float
    y: float
    width: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def middle(self) -> float:
        return self.y + _NODE_HEIGHT / 2


def draw_graph(title: str, nodes: Sequence[Node], edges: Iterable[FlowEdge]) -> Drawing:
    """Return the picture of a graph; screen readers read the title instead."""
    labels: dict[Edge, str] = {}
    for arrow in edges:
        edge, flow = (arrow.begin, arrow.end), arrow.flow.rpartition(".")[2]
        labels[edge] = f"{labels[edge]}, {flow}" if edge in labels else flow
    layout = lay_out([node.name for node in nodes], labels)
    boxes, bottom, right = _places(nodes, layout, _gaps(labels, layout))
    parts = [*_forward(labels, layout, boxes)]
    depth = bottom
    for number, (begin, end) in enumerate(layout.back):
        depth = bottom + 14 + _BACK_ROW * number
        parts += _returning(boxes[begin], boxes[end], depth, labels[begin, end])
    parts += [line for node in nodes for line in _box(node, boxes[node.name])]
    width, height = round(right + _MARGIN), round(depth + _BACK_ROW)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(title)}" '
        f'viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'style="max-width:100%" font-family="sans-serif" font-size="12" fill="none" '
        'stroke="currentColor">'
    )
    return Drawing("\n".join([head, f"<title>{escape(title)}</title>", *parts, "</svg>"]))


def _gaps(labels: Mapping[Edge, str], layout: Layout) -> list[float]:
    """Return the space after each layer, wide enough for the names of the flows."""
    gaps = [float(_GAP_MIN)] * max(1, len(layout.layers))
    for edge in labels.keys() - {*layout.back}:
        at = layout.layer_of[edge[0]]
        gaps[at] = max(gaps[at], len(labels[edge]) * _LABEL_CHARACTER + 36)
    return gaps


def _places(
    nodes: Sequence[Node], layout: Layout, gaps: Sequence[float]
) -> tuple[dict[object, _Box], float, float]:
    """Return the box of every node and lane, and the lowest and rightmost ends of all."""
    width_of = {node.name: _width(node) for node in nodes}
    heights = [
        sum(_ROW if isinstance(one, str) else _LANE_ROW for one in layer) for layer in layout.layers
    ]
    tallest, x, right = max(heights, default=_NODE_HEIGHT), float(_MARGIN), float(_MARGIN)
    boxes: dict[object, _Box] = {}
    for layer, height, gap in zip(layout.layers, heights, gaps, strict=False):
        width = max((width_of[one] for one in layer if isinstance(one, str)), default=0.0)
        y = _MARGIN + (tallest - height) / 2
        for one in layer:
            if isinstance(one, str):
                boxes[one] = _Box(x + (width - width_of[one]) / 2, y, width_of[one])
                y += _ROW
            else:
                boxes[one] = _Box(x, y + _LANE_ROW / 2 - _NODE_HEIGHT / 2, width)
                y += _LANE_ROW
        right = x + width
        x = right + gap
    return boxes, _MARGIN + tallest - (_ROW - _NODE_HEIGHT), right


def _forward(
    labels: Mapping[Edge, str], layout: Layout, boxes: Mapping[object, _Box]
) -> Iterable[str]:
    back = {*layout.back}
    for (begin, end), label in labels.items():
        if (begin, end) in back:
            continue
        lanes = range(layout.layer_of[begin] + 1, layout.layer_of[end])
        stops = [boxes[begin], *(boxes[(begin, end, at)] for at in lanes), boxes[end]]
        path = f"M{stops[0].right:.0f} {stops[0].middle:.0f}"
        for one, other in pairwise(stops):
            half = (one.right + other.x) / 2
            path += (
                f" C{half:.0f} {one.middle:.0f} {half:.0f} {other.middle:.0f} "
                f"{other.x:.0f} {other.middle:.0f}"
            )
            if other is not stops[-1]:
                path += f" H{other.right:.0f}"
        yield f'<path d="{path}" opacity="0.6"/>'
        yield _head(stops[-1].x, stops[-1].middle)
        x, y = (stops[0].right + stops[1].x) / 2, (stops[0].middle + stops[1].middle) / 2
        yield _text(x, y - 5, label, size=10)


def _returning(begin: _Box, end: _Box, depth: float, label: str) -> Iterable[str]:
    """Draw an edge that leaves on the right, passes below all boxes, and arrives on the left."""
    out, into = begin.right + 12, end.x - 16
    leaves, arrives = begin.middle + 11, end.middle + 11
    yield (
        f'<path d="M{begin.right:.0f} {leaves:.0f} H{out:.0f} V{depth:.0f} H{into:.0f} '
        f'V{arrives:.0f} H{end.x:.0f}" opacity="0.6" stroke-dasharray="5 3"/>'
    )
    yield _head(end.x, arrives)
    yield _text((out + into) / 2, depth + 11, label, size=10)


def _head(x: float, y: float) -> str:
    triangle = f"M{x:.0f} {y:.0f} l-7 -4 v8 z"
    return f'<path d="{triangle}" fill="currentColor" stroke="none" opacity="0.8"/>'


def _box(node: Node, box: _Box) -> Iterable[str]:
    radius = {"source": _NODE_HEIGHT / 2, "stage": 4, "result": 10}[node.kind]
    dashes = ' stroke-dasharray="4 3"' if node.kind == "result" else ""
    yield (
        f'<g data-node="{escape(node.name)}"><title>{escape(node.name)}</title>'
        f'<rect x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" height="{_NODE_HEIGHT}" '
        f'rx="{radius:.0f}" fill="currentColor" fill-opacity="0.06"{dashes}/>'
    )
    middle, y = box.x + box.width / 2, box.middle
    if node.detail:
        yield _text(middle, y - 2, _clipped(node.name), size=12)
        yield _text(middle, y + 12, _clipped(node.detail), size=10)
    else:
        yield _text(middle, y + 4, _clipped(node.name), size=12)
    yield "</g>"


def _text(x: float, y: float, text: str, *, size: int) -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="middle" stroke="none" '
        f'fill="currentColor">{escape(text)}</text>'
    )


def _width(node: Node) -> float:
    text = max(len(_clipped(node.name)), len(_clipped(node.detail)) * 0.85)
    return max(_WIDTH_MIN, text * _CHARACTER + 24)


def _clipped(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else text[: _TEXT_MAX - 1] + "…"


Edge = tuple[str, str]
"""The node that an edge begins at, and the node that it leads to."""

Lane = tuple[str, str, int]
"""The part of a long edge in one layer: `(begin, end, layer)`."""

_SWEEPS = 8


@dataclass(frozen=True, slots=True)
class Layout:
    """The positions of nodes.

    Attributes:
        layers: Node names and lanes, by layer and from top to bottom.
        back: Edges that close a cycle, in the order given. An edge from a node to itself is one.
    """

    layers: tuple[tuple[str | Lane, ...], ...]
    layer_of: Mapping[str, int]
    back: tuple[Edge, ...]


def lay_out(nodes: Sequence[str], edges: Iterable[Edge]) -> Layout:
    """Return the layout of a graph; an edge that is given twice counts once."""
    distinct = list(dict.fromkeys(edges))
    place = {name: at for at, name in enumerate(_forward_order(nodes, distinct))}
    back = tuple((begin, end) for begin, end in distinct if place[end] <= place[begin])
    forward = [(begin, end) for begin, end in distinct if place[begin] < place[end]]
    layer_of = _layers(nodes, forward, place)
    return Layout(_ordered(nodes, forward, layer_of), layer_of, back)


def _forward_order(nodes: Sequence[str], edges: Sequence[Edge]) -> list[str]:
    """Return all nodes in an order in which few edges lead back; without a cycle none does."""
    feeding: dict[str, set[str]] = {name: set() for name in nodes}
    for begin, end in edges:
        feeding[end].add(begin)
    before = {name: frozenset(names) for name, names in feeding.items()}
    ordered: list[str] = []
    for component in components(before):
        remaining = list(component)
        while remaining:
            # A cycle begins at a node with inputs from outside, if it has any. Among these, or
            # among all, it begins at the node with the fewest inputs from the rest of the cycle.
            inside = {*component}
            first = min(
                remaining,
                key=lambda name: (before[name] <= inside, len(before[name] & {*remaining}), name),
            )
            remaining.remove(first)
            ordered.append(first)
    return ordered


def _layers(
    nodes: Sequence[str], forward: Sequence[Edge], place: Mapping[str, int]
) -> dict[str, int]:
    """Return each node's layer: after all nodes that feed it, and close to those that it feeds."""
    layer_of = dict.fromkeys(nodes, 0)
    for begin, end in sorted(forward, key=lambda edge: place[edge[1]]):
        layer_of[end] = max(layer_of[end], layer_of[begin] + 1)
    fed = {end for _, end in forward}
    for name in nodes:
        readers = [layer_of[end] for begin, end in forward if begin == name]
        if name not in fed and readers:
            layer_of[name] = min(readers) - 1
    return layer_of


def _ordered(
    nodes: Sequence[str], forward: Sequence[Edge], layer_of: Mapping[str, int]
) -> tuple[tuple[str | Lane, ...], ...]:
    layers = [list[str | Lane]() for _ in range(max(layer_of.values(), default=-1) + 1)]
    for name in nodes:
        layers[layer_of[name]].append(name)
    beside: dict[str | Lane, list[str | Lane]] = {}
    for begin, end in forward:
        lanes = [(begin, end, layer) for layer in range(layer_of[begin] + 1, layer_of[end])]
        for lane in lanes:
            layers[lane[2]].append(lane)
        chain: list[str | Lane] = [begin, *lanes, end]
        for one, other in pairwise(chain):
            beside.setdefault(one, []).append(other)
            beside.setdefault(other, []).append(one)
    for _ in range(_SWEEPS):
        for at in [*range(len(layers)), *reversed(range(len(layers)))]:
            height = {
                one: row / max(1, len(layer) - 1)
                for layer in layers[max(0, at - 1) : at + 2]
                for row, one in enumerate(layer)
            }
            layers[at].sort(
                key=lambda one: median(
                    [height[other] for other in beside.get(one, []) if other in height]
                    or [height[one]]
                )
            )
    return tuple(map(tuple, layers))
