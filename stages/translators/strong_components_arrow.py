"""Strongly connected components of a graph, while edges come and go, on columns.

    edges within a component that went -> the nodes of that component ---------.
    edges between components that came -> what they reach, and what reaches them '-> labelled again

A component that lost an edge can only split into parts of itself. A new cycle goes through an
added edge: each of its nodes is reached from the end of such an edge, and reaches the beginning of
one. Both searches take turns, and the one that ends first bounds the other. Only nodes that were
found are labelled again; these can be all nodes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cbp import TranslateRun, View
from stages.link_arrays import CHANGED, WAYS, LinkChanges, LinkTable
from stages.node_values import NONE, NodeValues
from stages.nodes import Nodes
from stages.strong_components import strong_components

__all__ = ["StrongComponentsArrow"]

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]


class StrongComponentsArrow(TranslateRun):
    """Label each node with the least node that it reaches and is reached from.

    Shape:
        edges: the changes of a view with the columns `src` and `dst`; the same edge twice is one.
            With `changes=False`, records `(src, dst, gone BOOLEAN)`: the last one of two nodes
            counts.
        nodes: a view `(node, label)` with the key `node`, of the nodes that have an edge.

    Args:
        node: Type of a node, such as `STRING`.
        changes: Whether edges are the changes of a view.
    """

    ways = WAYS

    def __init__(self, node: str = "BIGINT", changes: bool = True) -> None:
        self.key = f"node {node}"
        self.edges, self.links = LinkTable.declare(node, "", changes=changes)
        self.nodes = View(f"node {node}, label {node}", key="node", keep=True)

    def translate(self, tables: Any, out: Any) -> str:
        """Label the nodes that added and removed edges may have joined or separated."""
        run = _Labels(tables)
        run.relabel(run.links.change(tables.edges, out))
        run.values.write(out.nodes)
        return CHANGED


class _Labels:
    """The labels of the nodes that a run meets."""

    def __init__(self, tables: Any) -> None:
        self.nodes = Nodes()
        self.links = LinkTable(tables.links, self.nodes)
        self.values = NodeValues(tables.nodes, self.nodes, ["label"], are_nodes=True)

    def relabel(self, changed: LinkChanges) -> None:
        """Find the nodes whose label may change, and label them."""
        ends = np.unique(changed.node)
        self.values.know(ends)
        is_there = np.bincount(self.links.of(ends)[0], minlength=len(ends)) > 0
        is_new = self.values.now[0, ends] == NONE
        self.values.now[0, ends[is_new & is_there]] = ends[is_new & is_there]
        had, has = changed.had_mine > 0, changed.mine > 0
        old, now = self.values.old[0], self.values.now[0]
        gone = had & ~has & (old[changed.node] == old[changed.other])
        came = has & ~had & (now[changed.node] != now[changed.other])
        parted = _Search(self, np.concatenate([changed.node[gone], changed.other[gone]]), "within")
        while len(parted.front):
            parted.step()
        joined = self._joined(changed.other[came], changed.node[came])
        affected = np.union1d(np.flatnonzero(parted.seen), joined)
        self.values.know(affected)
        self.values.now[0, ends[~is_there]] = NONE
        affected = affected[self.values.now[0, affected] != NONE]
        self._label(affected[np.argsort(self.nodes.ids[affected], kind="stable")])

    def _joined(self, heads: Int64s, tails: Int64s) -> Int64s:
        """Return the nodes that are reached from some heads and that reach some tails."""
        one, other = _Search(self, heads, "mine"), _Search(self, tails, "theirs")
        while len(one.front) and len(other.front):
            min(one, other, key=lambda search: search.links).step()
        if len(one.front):
            one, other = other, one
        other.bound(one)
        while len(other.front):
            other.step()
        both = (_grown(search.seen, len(self.nodes)) for search in (one, other))
        return np.flatnonzero(np.logical_and(*both))

    def _label(self, affected: Int64s) -> None:
        """Label nodes, which ascend by their ids, by the edges among them."""
        place = np.full(len(self.nodes), NONE)
        place[affected] = np.arange(len(affected))
        at, links = self.links.of(affected)
        to = place[self.links.other[links]]
        inside = self.links.mine[links] & (to != NONE)
        least = strong_components(len(affected), at[inside], to[inside])
        self.values.now[0, affected] = affected[least]


class _Search:
    """The nodes that are reached from some nodes, step by step.

    Args:
        labels: The links and labels of the run.
        front: Where the search begins.
        along: Follow edges (`mine`), or follow them backwards (`theirs`), or in both directions
            `within` the component that a node had before the run.

    Attributes:
        front: Nodes that were reached by the last step.
        seen: Which nodes are reached.
        links: Number of links that were examined.
    """

    def __init__(self, labels: _Labels, front: Int64s, along: str) -> None:
        self._labels, self._along = labels, along
        self._bound: Bools | None = None
        self.front, self.links = np.unique(front), 0
        self.seen = np.zeros(len(labels.nodes), np.bool_)
        self.seen[self.front] = True

    def step(self) -> None:
        """Go one link further."""
        labels = self._labels
        at, links = labels.links.of(self.front)
        to = labels.links.other[links]
        self.links += len(links)
        if self._along == "within":
            labels.values.know(to)
            old = labels.values.old[0]
            follows = old[to] == old[self.front[at]]
        else:
            follows = (labels.links.mine if self._along == "mine" else labels.links.theirs)[links]
        self.seen = _grown(self.seen, len(labels.nodes))
        follows &= ~self.seen[to]
        if self._bound is not None:
            follows &= _grown(self._bound, len(labels.nodes))[to]
        self.front = np.unique(to[follows])
        self.seen[self.front] = True

    def bound(self, other: _Search) -> None:
        """Reach from now on only nodes that another search found."""
        self._bound = other.seen
        self.front = self.front[_grown(other.seen, len(self._labels.nodes))[self.front]]


def _grown(flags: Bools, many: int) -> Bools:
    return np.concatenate([flags, np.zeros(many - len(flags), np.bool_)])
