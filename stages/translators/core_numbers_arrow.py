"""Core numbers of a graph, while edges come and go, on columns.

The k-core is what is left when nodes with fewer than k neighbours are taken away until there are
none. The core number of a node is the largest k whose core has it.

    links that went -> lowered: as many neighbours have a number as the number says -.
    links that came -> raised, level by level: what may join the next core is peeled '-> nodes

A number that is too high falls to the right one, by the numbers of neighbours alone. A node whose
number may rise is connected to an added link by nodes of the same number with enough neighbours. If
a tenth of all links changed, all numbers are lowered from the degrees again, which is cheaper.

Source: lowering by the h-index, Lü, Zhou, Zhang and Stanley (Nature Communications 2016); raising
one level at a time, after Sariyüce et al. (VLDB'13): for many links at once, ours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cbp import TranslateRun, View
from stages.link_arrays import ANEW, CHANGED, WAYS, LinkChanges, LinkTable
from stages.node_values import NONE, NodeValues
from stages.nodes import Nodes, array_of

__all__ = ["CoreNumbersArrow"]

Int64s = npt.NDArray[np.int64]

_ALL_SHARE = 10
"""All numbers are derived again if at least one link in this many has changed."""


class CoreNumbersArrow(TranslateRun):
    """Keep the core number of each node; edges are undirected.

    Self-loops and repeated edges change nothing.

    Shape:
        edges: the changes of a view with the columns `src` and `dst`. With `changes=False`, records
            `(src, dst, gone BOOLEAN)`: the last one of two nodes counts.
        nodes: a view `(node, core BIGINT)` with the key `node`, of the nodes that have a neighbour.

    Args:
        node: Type of a node, such as `STRING`.
        changes: Whether edges are the changes of a view.
    """

    ways = (
        f"{WAYS}; anew where the links that changed, from both of their ends, are a "
        f"{_ALL_SHARE}th of all or more"
    )

    def __init__(self, node: str = "BIGINT", changes: bool = True) -> None:
        self.key = f"node {node}"
        self.edges, self.links = LinkTable.declare(node, "", changes=changes)
        self.nodes = View(f"node {node}, core BIGINT", key="node", keep=True)

    def translate(self, tables: Any, out: Any) -> str:
        """Lower and raise the core numbers that removed and added links change."""
        run = _Cores(tables)
        changed = run.links.change(tables.edges, out)
        is_anew = _ALL_SHARE * len(changed.node) >= tables.links.size
        if is_anew:
            run.know_all()
            run.derive(np.arange(len(run.nodes)))
        else:
            run.change(changed)
        run.values.write(out.nodes)
        return ANEW if is_anew else CHANGED


class _Cores:
    """The core numbers of the nodes that a run meets."""

    def __init__(self, tables: Any) -> None:
        self._table = tables.nodes
        self.nodes = Nodes()
        self.links = LinkTable(tables.links, self.nodes)
        self.values = NodeValues(tables.nodes, self.nodes, ["core"])

    @property
    def _core(self) -> Int64s:
        row: Int64s = self.values.now[0]
        return row

    def know_all(self) -> None:
        """Meet all nodes."""
        self.nodes.numbers(array_of(self._table.all()["node"]))

    def derive(self, numbers: Int64s) -> None:
        """Lower the numbers of nodes from their degrees."""
        self.values.know(numbers)
        at, _ = self._around(numbers)
        degree = np.bincount(at, minlength=len(numbers))
        self._core[numbers] = np.where(degree > 0, degree, NONE)
        self._lower(numbers[degree > 0])

    def change(self, changed: LinkChanges) -> None:
        """Lower the numbers of nodes that lost a neighbour, then raise those of others."""
        had = (changed.had_mine > 0) | (changed.had_theirs > 0)
        has = (changed.mine > 0) | (changed.theirs > 0)
        other = changed.node != changed.other
        ends = np.unique(changed.node[other])
        self.values.know(ends)
        at, _ = self._around(ends)
        is_alone = np.bincount(at, minlength=len(ends)) == 0
        self._core[ends] = np.maximum(self._core[ends], 0)
        self._core[ends[is_alone]] = NONE
        self._lower(ends[~is_alone])
        came = has & ~had & (changed.node < changed.other)
        self._raise(changed.node[came], changed.other[came])

    def _around(self, numbers: Int64s) -> tuple[Int64s, Int64s]:
        """Return the neighbours of nodes and learn their numbers: index of node, neighbour."""
        at, links = self.links.of(numbers)
        others = self.links.other[links]
        self.values.know(others)
        apart = others != numbers[at]
        return at[apart], others[apart]

    def _lower(self, front: Int64s) -> None:
        """Lower each number until that many neighbours have a number at least as high."""
        while len(front):
            at, others = self._around(front)
            held = self._core[front]
            right = np.minimum(held, _h_index(at, self._core[others], len(front)))
            fallen = right < held
            self._core[front[fallen]] = right[fallen]
            at, others = self._around(front[fallen])
            front = np.unique(others[self._core[others] > right[fallen][at]])

    def _raise(self, node: Int64s, other: Int64s) -> None:
        """Raise numbers, level by level, where links came.

        Args:
            node: One end of each link.
            other: Its other end.
        """
        level = -1
        while True:
            least = np.minimum(self._core[node], self._core[other])
            above = least[least > level]
            if not len(above):
                return
            level = int(above.min())
            ends = np.concatenate([node[least == level], other[least == level]])
            self._raise_from(np.unique(ends[self._core[ends] == level]), level)

    def _raise_from(self, front: Int64s, level: int) -> None:
        """Raise the nodes of a level that are in the next core."""
        state = np.zeros(len(self.nodes), np.int8)  # 1: seen, 2: may rise
        rising = []
        while len(front):
            at, others = self._around(front)
            state = np.concatenate([state, np.zeros(len(self.nodes) - len(state), np.int8)])
            many = np.bincount(at[self._core[others] >= level], minlength=len(front))
            state[front] = np.where(many > level, 2, 1)
            rising.append(front[many > level])
            onward = (many > level)[at] & (self._core[others] == level) & (state[others] == 0)
            front = np.unique(others[onward])
        nodes = np.unique(np.concatenate(rising)) if rising else front
        at, others = self._around(nodes)
        holds = (self._core[others] > level) | (state[others] == 2)
        support = np.zeros(len(self.nodes), np.int64)
        support[nodes] = np.bincount(at[holds], minlength=len(nodes))
        front = nodes[support[nodes] <= level]
        while len(front):
            state[front] = 1
            at, others = self._around(front)
            others = others[state[others] == 2]
            np.subtract.at(support, others, 1)
            front = np.unique(others[support[others] <= level])
        self._core[nodes[state[nodes] == 2]] = level + 1


def _h_index(at: Int64s, values: Int64s, many: int) -> Int64s:
    """Return the largest h of each node such that h of its values are h or more.

    Args:
        at: The node of each value, ascending.
        values: The values, not below zero.
        many: Number of nodes.
    """
    most = int(values.max(initial=0)) + 1
    descending = most - np.sort(at * most + (most - 1 - values)) % most - 1
    sizes = np.bincount(at, minlength=many)
    place = np.arange(len(at)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.bincount(at[descending > place], minlength=many)
