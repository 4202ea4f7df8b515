"""Clustering coefficients of a graph, while edges come and go, on columns.

The coefficient of a node with N neighbours and E edges among them is 2E / (N(N-1)); 0 for N < 2.
E is the number of triangles of the node.

    edges -> links that went -> triangles that they closed, before -> counts -> nodes
          '-> links that came -> triangles that they close, now ---'

A link closes a triangle with each common neighbour of its ends. A triangle of several links that
came (or went) is counted once, at the last of them. The state is the links, at both of their ends,
and a record for each node: it grows with the links, not with the paths of two.

Source: CBP (SoCC'10), section 3.1.1, for the application; counting by changed links: ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cbp import TranslateRun, View
from stages.link_arrays import CHANGED, WAYS, LinkChanges, LinkTable, Reader, spans
from stages.nodes import Nodes, array_of

__all__ = ["ClusteringArrow"]

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]

_PATHS_MAX = 4_000_000
"""Most paths of two links that are examined together; each takes 8 bytes in several arrays."""


class ClusteringArrow(TranslateRun):
    """Keep degree, triangles and coefficient of every node; edges are undirected.

    Self-loops and repeated edges change nothing.

    Shape:
        edges: records `(src, dst, gone BOOLEAN)`: the last one of two nodes counts. With
            `changes=True`, the changes of a view with the columns `src` and `dst`.
        nodes: a view `(node, co DOUBLE, degree BIGINT, triangles BIGINT)` with the key `node`, of
            the nodes that have a neighbour.

    Args:
        node: Type of a node, such as `STRING`.
        changes: Whether edges are the changes of a view.
    """

    ways = WAYS

    def __init__(self, node: str = "BIGINT", changes: bool = False) -> None:
        self.key = f"node {node}"
        self.edges, self.links = LinkTable.declare(node, "", changes=changes)
        self.nodes = View(
            f"node {node}, co DOUBLE, degree BIGINT, triangles BIGINT", key="node", keep=True
        )

    def translate(self, tables: Any, out: Any) -> str:
        """Count the triangles that removed and added links change."""
        nodes = Nodes()
        links = LinkTable(tables.links, nodes)
        changed = links.change(tables.edges, out)
        gone, come = _pairs(changed)
        ends = np.unique(np.concatenate([gone, come]))
        around = _Around.of(links, ends, gone, come, nodes)
        degree, triangles = np.zeros((2, len(nodes)), np.int64)
        for pairs, sign in ((gone, -1), (come, 1)):
            np.add.at(degree, pairs.ravel(), sign)
            for corners in around.triangles(pairs, are_gone=sign < 0):
                np.add.at(triangles, corners, sign)
        _write(nodes, Reader(tables.nodes, nodes), degree, triangles, out)
        return CHANGED


def _pairs(changed: LinkChanges) -> tuple[Int64s, Int64s]:
    """Return the pairs of nodes that are no longer linked, and those that are newly linked."""
    had = (changed.had_mine > 0) | (changed.had_theirs > 0)
    has = (changed.mine > 0) | (changed.theirs > 0)
    once = changed.node < changed.other
    both = np.stack([changed.node, changed.other], axis=1)
    return both[once & had & ~has], both[once & has & ~had]


@dataclass(frozen=True)
class _Around:
    """The links of some nodes, removed ones included, sorted by both ends.

    Attributes:
        codes: `node * many + other` of each link, ascending.
        many: Number of all nodes that were met.
        gone: For each link, its place among the pairs that are gone; -1 if it is not.
        come: The same, among those that came.
    """

    codes: Int64s
    many: int
    gone: Int64s
    come: Int64s

    @classmethod
    def of(
        cls, links: LinkTable, ends: Int64s, gone: Int64s, come: Int64s, nodes: Nodes
    ) -> _Around:
        """Return the links around some nodes."""
        at, indexes = links.of(ends)
        many = len(nodes)
        node, other = ends[at], links.other[indexes]
        codes = (node * many + other)[node != other]
        codes = np.sort(np.concatenate([codes, *_both_ways(gone, many)]))
        return cls(codes, many, _places(codes, gone, many), _places(codes, come, many))

    def triangles(self, pairs: Int64s, *, are_gone: bool) -> Iterator[Int64s]:
        """Yield the corners of the triangles of pairs that came, or are gone; some at a time.

        Args:
            pairs: The pairs.
            are_gone: Whether they are gone, so that links which came do not count; otherwise,
                links that are gone do not.
        """
        place, excluded = (self.gone, self.come) if are_gone else (self.come, self.gone)
        starts = np.searchsorted(self.codes, pairs * self.many)
        sizes = np.searchsorted(self.codes, (pairs + 1) * self.many) - starts
        less = np.argmin(sizes, axis=1)
        row = np.arange(len(pairs))
        starts, sizes = starts[row, less], sizes[row, less]
        far = pairs[row, 1 - less]
        total = np.cumsum(sizes)
        first = 0
        while first < len(pairs):
            done = total[first - 1] if first else 0
            stop = max(first + 1, int(np.searchsorted(total, done + _PATHS_MAX, "right")))
            some = slice(first, stop)
            pair = np.repeat(row[some], sizes[some])
            near = spans(starts[some], sizes[some])
            corner = self.codes[near] % self.many
            wanted = far[pair] * self.many + corner
            across = np.minimum(np.searchsorted(self.codes, wanted), len(self.codes) - 1)
            closes = self.codes[across] == wanted
            for side in (near, across):
                closes &= (place[side] < pair) & (excluded[side] < 0)
            yield np.concatenate([pairs[pair[closes]].ravel(), corner[closes]])
            first = stop


def _both_ways(pairs: Int64s, many: int) -> tuple[Int64s, Int64s]:
    return pairs[:, 0] * many + pairs[:, 1], pairs[:, 1] * many + pairs[:, 0]


def _places(codes: Int64s, pairs: Int64s, many: int) -> Int64s:
    """Return the place of each link among pairs; -1 if it is not there."""
    places = np.full(len(codes), -1)
    for wanted in _both_ways(pairs, many):
        places[np.searchsorted(codes, wanted)] = np.arange(len(pairs))
    return places


def _write(nodes: Nodes, reader: Reader, degree: Int64s, triangles: Int64s, out: Any) -> None:
    """Add what changed to the records of nodes."""
    changed = np.flatnonzero((degree != 0) | (triangles != 0))
    read = reader.read(changed)
    if read is None:
        return
    records = read[1]
    mine = nodes.numbers(array_of(records["node"]))
    before = np.zeros((2, len(nodes)), np.int64)
    for at, name in enumerate(("degree", "triangles")):
        before[at, mine] = array_of(records[name])
    now = before[:, changed] + np.stack([degree[changed], triangles[changed]])
    stays = now[0] > 0
    ids, (degrees, corners) = nodes.ids[changed], now
    paths = np.maximum(degrees * (degrees - 1), 1)
    columns = {"co": 2 * corners / paths, "degree": degrees, "triangles": corners}
    out.nodes({"node": ids[stays], **{name: many[stays] for name, many in columns.items()}})
    out.nodes.delete({"node": ids[~stays & (before[0, changed] > 0)]})
