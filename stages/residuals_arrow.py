"""Scores that flow along links which come and go, to a declared error: residuals, on columns.

    class PageRank(ResidualsArrow):
        def base(self, nodes):                   # what nodes get by themselves
            return np.full(len(nodes), 0.15)

        def share(self, scores, links):          # what nodes give to each of their links
            return 0.85 * scores / links

    edges -> what nodes give now, less what they gave -> residuals -> pushed along links -> ranks

A node's score is its base and what the nodes that link to it give. Its residual is what its score
lacks of that. A node whose residual is larger than a threshold adds it to its score, and passes on
what it gives more. An edge that comes or goes changes what one node gives to each of its links. So
scores go on from the last fixpoint, and a run reads and writes what it comes to.

Amounts are whole numbers of 2**-44, and what a node gives is a function of its score and its number
of links. So what it takes back is what it gave, sums do not depend on their order, and nothing
builds up, however long the history is.

Source: the local push of Andersen, Chung and Lang (FOCS'06), with edges that change as in Zhang,
Lofgren and Goel (KDD'16); whole numbers: ours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cbp import State, TranslateRun, View
from cbp.errors import DefinitionError, Mistake
from stages.link_arrays import CHANGED, WAYS, LinkChanges, LinkTable, Reader
from stages.nodes import Nodes, array_of

__all__ = ["ERROR_MIN", "ResidualsArrow"]

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]

ONE = 1 << 44
"""Units of a score of 1."""

UNITS_MAX = 1 << 62
"""Most units of a node, a score of 262,144."""

ERROR_MIN = 1e-11
"""Least error that rounding leaves room for."""

PUSHES_MAX = 100_000
"""Most rounds of pushes in a run, some hundred times what a damping of 0.99 needs."""

_COLUMNS = ("units", "residual", "enters", "leaves")


class ResidualsArrow(TranslateRun):
    """Keep a score of every node that has a link.

    A subclass says what nodes get by themselves, and what they give to each of their links: of a
    score, all links together at most the share `damping`.

    Shape:
        edges: the changes of a view with the columns `src` and `dst`; the same edge twice is one
            link. With `changes=False`, records `(src, dst, gone BOOLEAN)`: the last one of two
            nodes counts.
        ranks: a view `(node, score DOUBLE)` with the key `node`: the nodes that have an edge.

    Args:
        damping: See above; in (0, 1).
        error: Largest mean over all nodes of the difference between a score and the right one.
        node: Type of a node.
        changes: Whether edges are the changes of a view.
    """

    ways = WAYS

    def __init__(
        self,
        damping: float = 0.85,
        error: float = 1e-6,
        node: str = "BIGINT",
        changes: bool = True,
    ) -> None:
        if not 0 < damping < 1:
            self._refuse("damping", damping, "a number between 0 and 1")
        if not error >= ERROR_MIN:
            self._refuse("error", error, f"a number from {ERROR_MIN} on")
        self.damping, self.most = damping, round(error * (1 - damping) * ONE)
        self.key = f"node {node}"
        self.edges, self.links = LinkTable.declare(node, "", changes=changes, both=False)
        self.pages = State(
            f"node {node}, units BIGINT, residual BIGINT, enters BIGINT, leaves BIGINT",
            keep=True,
            key="node",
            not_compared="units, residual",
        )
        self.ranks = View(f"node {node}, score DOUBLE", key="node", keep=True, not_compared="score")

    def base(self, nodes: Any) -> Any:
        """Return what nodes get by themselves."""
        raise NotImplementedError

    def share(self, scores: Any, links: Any) -> Any:
        """Return what nodes give to each of their links, of which they have one at least."""
        raise NotImplementedError

    def translate(self, tables: Any, out: Any) -> str:
        """Take the edges that came and went, and push what they change until it is small."""
        run = _Pushes(self, tables)
        run.relink(run.links.change(tables.edges, out))
        run.push()
        run.write(out)
        return CHANGED

    def _refuse(self, name: str, value: object, expected: str) -> None:
        where = f"{type(self).__name__}.{name}"
        raise DefinitionError(Mistake("parameter_invalid", where, f"{value!r}; give {expected}"))


class _Pushes:
    """The scores of the nodes that a run meets; arrays are indexed by the number of a node.

    Args:
        author: Says what nodes get and give.
        tables: What the run gives.
    """

    def __init__(self, author: ResidualsArrow, tables: Any) -> None:
        self._author = author
        self.nodes = Nodes()
        self.links = LinkTable(tables.links, self.nodes, both=False)
        self._reader = Reader(tables.pages, self.nodes)
        self._old = np.zeros((len(_COLUMNS), 0), np.int64)
        self._now = self._old

    def relink(self, changed: LinkChanges) -> None:
        """Give each link of the nodes whose links changed what is due to it."""
        sign = (changed.mine > 0).astype(np.int64) - (changed.had_mine > 0)
        moved = np.flatnonzero(sign)
        node, other, sign = changed.node[moved], changed.other[moved], sign[moved]
        self._know(np.concatenate([node, other]))
        givers = np.unique(node)
        before = self._gives(givers)
        np.add.at(self._leaves, node, sign)
        np.add.at(self._enters, other, sign)
        at, links = self.links.of(givers)
        to = self.links.other[links]
        self._know(to)
        after = self._gives(givers)
        np.add.at(self._residual, to, (after - before)[at])
        gave = np.zeros(len(self.nodes), np.int64)
        gave[givers] = before
        np.add.at(self._residual, other, sign * gave[node])
        new = np.flatnonzero(self._there & ~self._was_there)
        base = np.asarray(self._author.base(self.nodes.ids[new]), np.float64)
        self._residual[new] += np.rint(base * ONE).astype(np.int64)

    def push(self) -> None:
        """Add residuals to scores, and pass them on, until none is above the threshold."""
        most = self._author.most
        for _ in range(PUSHES_MAX):
            pushers = np.flatnonzero((np.abs(self._residual) > most) & self._there)
            if not len(pushers):
                return
            at, links = self.links.of(pushers)
            to = self.links.other[links]
            self._know(to)
            before = self._gives(pushers)
            self._units[pushers] += self._residual[pushers]
            self._residual[pushers] = 0
            after = self._gives(pushers)
            np.add.at(self._residual, to, (after - before)[at])
        message = (
            f"residuals are above the threshold after {PUSHES_MAX} rounds: share() gives more than "
            f"the damping {self._author.damping} of a score, or the error is too small"
        )
        raise ArithmeticError(message)

    def write(self, out: Any) -> None:
        """Keep what changed."""
        there, ids = self._there, self.nodes.ids
        changed = there & (~self._was_there | (self._now != self._old).any(axis=0))
        columns = dict(zip(_COLUMNS, self._now[:, changed], strict=True))
        out.pages({"node": ids[changed], **columns})
        gone = {"node": ids[self._was_there & ~there]}
        out.pages.delete(gone)
        moved = there & (~self._was_there | (self._units != self._old[0]))
        out.ranks({"node": ids[moved], "score": self._units[moved] / ONE})
        out.ranks.delete(gone)

    @property
    def _units(self) -> Int64s:
        row: Int64s = self._now[0]
        return row

    @property
    def _residual(self) -> Int64s:
        row: Int64s = self._now[1]
        return row

    @property
    def _enters(self) -> Int64s:
        row: Int64s = self._now[2]
        return row

    @property
    def _leaves(self) -> Int64s:
        row: Int64s = self._now[3]
        return row

    @property
    def _there(self) -> Bools:
        return np.asarray((self._now[2:] > 0).any(axis=0))

    @property
    def _was_there(self) -> Bools:
        return np.asarray((self._old[2:] > 0).any(axis=0))

    def _gives(self, numbers: Int64s) -> Int64s:
        """Return what nodes give to each of their links, in units."""
        leaves, units = self._leaves[numbers], self._units[numbers]
        if (np.abs(units) > UNITS_MAX).any():
            message = f"a score is above {UNITS_MAX // ONE}"
            raise OverflowError(message)
        gives = np.zeros(len(numbers), np.int64)
        some = np.flatnonzero(leaves > 0)
        share = self._author.share(units[some] / ONE, leaves[some])
        gives[some] = np.rint(np.asarray(share, np.float64) * ONE).astype(np.int64)
        return gives

    def _know(self, numbers: Int64s) -> None:
        """Read the scores of nodes, unless they are known."""
        read = self._reader.read(numbers)
        if read is not None:
            records = read[1]
            mine = self.nodes.numbers(array_of(records["node"]))
        more = len(self.nodes) - self._now.shape[1]
        if more or self._now is self._old:
            blank = np.zeros((len(_COLUMNS), more), np.int64)
            self._old, self._now = (
                np.concatenate([one, blank], axis=1) for one in (self._old, self._now)
            )
        if read is not None and len(mine):
            for at, name in enumerate(_COLUMNS):
                self._old[at, mine] = self._now[at, mine] = array_of(records[name])
