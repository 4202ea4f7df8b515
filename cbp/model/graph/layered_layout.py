"""Lay a graph out in layers, from left to right; pure.

A node is in a layer behind all nodes that feed it. An edge that closes a cycle leads back and
does not count for this. An edge that passes over a layer gets a lane of its own there, so that it
crosses no box.

Invariants (tests/cbp/model/graph/test_layered_layout.py): every node has one place, no two
places overlap, every edge that leads forward rises by at least one layer, and the same graph has
the same layout.

Source: Sugiyama, Tagawa, Toda, "Methods for Visual Understanding of Hierarchical System Structures"
(1981), with medians of neighbours for the order.

It draws the picture of a dataflow in a notebook (`cbp.model.graph.drawing`). The graph on the page
has a layout of its own, in pixels: controller/ui/src/screens/graph/layout.ts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from cbp.model.graph.cycles import components

__all__ = ["Edge", "Layout", "lay_out"]

Edge = tuple[str, str]
"""The node that an edge begins at, and the node that it leads to."""

_SWEEPS = 8


@dataclass(frozen=True, slots=True)
class Layout:
    """Where nodes stand.

    Attributes:
        layers: Node names and lanes, by layer and from top to bottom. A lane is
            `(begin, end, layer)`, the part of a long edge in this layer.
        layer_of: The layer of each node.
        back: Edges that close a cycle, in the order given. An edge from a node to itself is one.
    """

    layers: tuple[tuple[str | tuple[str, str, int], ...], ...]
    layer_of: Mapping[str, int]
    back: tuple[Edge, ...]


def lay_out(nodes: Sequence[str], edges: Iterable[Edge]) -> Layout:
    """Return the layout of a graph.

    Args:
        nodes: All names, each once.
        edges: Between these nodes; an edge that is given twice counts once.
    """
    distinct = list(dict.fromkeys(edges))
    place = {name: at for at, name in enumerate(_forward_order(nodes, distinct))}
    back = tuple((begin, end) for begin, end in distinct if place[end] <= place[begin])
    forward = [edge for edge in distinct if edge not in set(back)]
    layer_of = _layers(nodes, forward, place)
    return Layout(_ordered(nodes, forward, layer_of), layer_of, back)


def _forward_order(nodes: Sequence[str], edges: Sequence[Edge]) -> list[str]:
    """Return all nodes so that few edges lead back; without a cycle none does."""
    before: dict[str, set[str]] = {name: set() for name in nodes}
    for begin, end in edges:
        before[end].add(begin)
    ordered: list[str] = []
    for component in components({name: frozenset(names) for name, names in before.items()}):
        remaining = list(component)
        while remaining:
            # A cycle begins where it is fed from outside, and at the node that waits for least.
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
    """Return each node's layer: behind all that feed it, and close to what it feeds."""
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
) -> tuple[tuple[str | tuple[str, str, int], ...], ...]:
    layers: list[list[str | tuple[str, str, int]]] = [
        [] for _ in range(max(layer_of.values(), default=-1) + 1)
    ]
    for name in nodes:
        layers[layer_of[name]].append(name)
    beside: dict[str | tuple[str, str, int], list[str | tuple[str, str, int]]] = {}
    for begin, end in forward:
        lanes = [(begin, end, layer) for layer in range(layer_of[begin] + 1, layer_of[end])]
        for lane in lanes:
            layers[lane[2]].append(lane)
        chain: list[str | tuple[str, str, int]] = [begin, *lanes, end]
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
                key=lambda one: _median(
                    [height[other] for other in beside.get(one, []) if other in height]
                    or [height[one]]
                )
            )
    return tuple(map(tuple, layers))


def _median(values: Sequence[float]) -> float:
    ranked = sorted(values)
    return (ranked[(len(ranked) - 1) // 2] + ranked[len(ranked) // 2]) / 2
