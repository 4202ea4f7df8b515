"""Communities by label propagation, while edges come and go, on columns.

Each node begins with itself as its label. In a round, every node takes the most frequent label of
its neighbours and itself; of several, the least. After some rounds, nodes that are linked closely
have one label.

    links that came and went -> round 1 at their ends -> round 2 there and around ... -> nodes

The result depends on the present graph only, not on its history. The label of a node after each
round is kept, and a round computes only the nodes whose neighbourhood has changed.

Source: Raghavan, Albert and Kumara, Physical Review E 76 (2007), in rounds; keeping every round is
the idea of differential dataflow (CIDR'13).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cbp import State, TranslateRun, View
from cbp.errors import DefinitionError, Mistake
from stages.link_arrays import CHANGED, WAYS, LinkTable
from stages.node_values import NONE, NodeValues
from stages.nodes import Nodes

__all__ = ["LabelPropagationArrow"]

Int64s = npt.NDArray[np.int64]


class LabelPropagationArrow(TranslateRun):
    """Give each node the commonest label among its neighbours; edges are undirected.

    Self-loops and repeated edges change nothing.

    Shape:
        edges: the changes of a view with the columns `src` and `dst`. With `changes=False`, records
            `(src, dst, gone BOOLEAN)`: the last one of two nodes counts.
        nodes: a view `(node, label)` with the key `node`, of the nodes that have a neighbour.

    Args:
        rounds: Number of rounds; each is a column of the state.
        node: Type of a node, such as `STRING`.
        changes: Whether edges are the changes of a view.
    """

    ways = WAYS

    def __init__(self, rounds: int = 5, node: str = "BIGINT", changes: bool = True) -> None:
        if not 1 <= rounds <= 100:
            where = f"{type(self).__name__}.rounds"
            raise DefinitionError(Mistake("parameter_invalid", where, f"{rounds!r}; give 1 to 100"))
        self.rounds = [f"round_{number}" for number in range(1, rounds + 1)]
        columns = ", ".join(f"{name} {node}" for name in self.rounds)
        self.key = f"node {node}"
        self.edges, self.links = LinkTable.declare(node, "", changes=changes)
        self.held = State(f"node {node}, {columns}", keep=True, key="node")
        self.nodes = View(f"node {node}, label {node}", key="node", keep=True)

    def translate(self, tables: Any, out: Any) -> str:
        """Recompute each round for nodes whose neighbourhood has changed."""
        nodes = Nodes()
        links = LinkTable(tables.links, nodes)
        changed = links.change(tables.edges, out)
        had = (changed.had_mine > 0) | (changed.had_theirs > 0)
        has = (changed.mine > 0) | (changed.theirs > 0)
        ends = np.unique(changed.node[(had != has) & (changed.node != changed.other)])
        run = _Rounds(links, nodes, NodeValues(tables.held, nodes, self.rounds, are_nodes=True))
        moved = np.empty(0, np.int64)
        for number in range(len(self.rounds)):
            moved = run.compute(number, np.union1d(ends, moved))
        run.values.write(out.held)
        run.values.write(out.nodes, label=self.rounds[-1])
        return CHANGED


class _Rounds:
    """The labels of the nodes that a run meets, after each round."""

    def __init__(self, links: LinkTable, nodes: Nodes, values: NodeValues) -> None:
        self._links, self._nodes, self.values = links, nodes, values

    def compute(self, number: int, near: Int64s) -> Int64s:
        """Compute a round for some nodes and their neighbours; return those with other labels."""
        front = np.union1d(near, self._around(near)[1])
        at, others = self._around(front)
        self.values.know(front)
        is_linked = np.bincount(at, minlength=len(front)) > 0
        before = np.arange(len(self._nodes)) if number == 0 else self.values.now[number - 1]
        owners = np.concatenate([at, np.flatnonzero(is_linked)])
        told = before[np.concatenate([others, front[is_linked]])]
        labels = np.full(len(front), NONE)
        labels[is_linked] = self._most_frequent(owners, told)
        self.values.now[number, front] = labels
        moved: Int64s = front[labels != self.values.old[number, front]]
        return moved

    def _around(self, numbers: Int64s) -> tuple[Int64s, Int64s]:
        """Return the neighbours of nodes and learn their labels: index of node, neighbour."""
        at, links = self._links.of(numbers)
        others = self._links.other[links]
        self.values.know(others)
        apart = others != numbers[at]
        return at[apart], others[apart]

    def _most_frequent(self, owners: Int64s, labels: Int64s) -> Int64s:
        """Return each owner's most frequent label; of several, the one with the least id."""
        many = len(self._nodes)
        codes, sizes = np.unique(owners * many + self._nodes.ranks[labels], return_counts=True)
        owner = codes // many
        order = np.lexsort((codes, -sizes, owner))
        firsts = np.flatnonzero(np.diff(owner[order], prepend=-1))
        best: Int64s = self._nodes.by_rank[codes[order[firsts]] % many]
        return best
