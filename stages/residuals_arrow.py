"""Scores that flow along links which come and go, to a declared error: residuals, on columns.

    class PageRank(ResidualsArrow):
        def base(self, nodes):                   # what nodes get by themselves
            return np.full(len(nodes), 0.15)

        def share(self, scores, links):          # what nodes give to each of their links
            return 0.85 * scores / links

    edges -> what nodes give now, less what they gave -> residuals -> pushed along links -> ranks

A node's score is its base and what the nodes that link to it give. Its residual is what its score
lacks of that. A node whose residual is larger than a threshold adds it to its score, and passes on
the increase of what it gives. An edge that comes or goes changes what one node gives to each of its
links. So scores continue from the last fixpoint, and a run reads and writes only what its changes
reach.

A run that reaches a large part of the graph does not push. It continues from the last scores, too,
but by sweeps over all links (`stages.fixpoint`), until no score lacks more than half of the
threshold. The remaining residuals are dropped, so that only records of changed scores are written.
The next sweeps compute them again, and pushes keep to the other half of the threshold.

Once a run has read all links and scores, they stay in memory for the next one
(`stages.links_in_memory`), which then reads only the records that it changes.

Amounts are whole multiples of 2**-44, and what a node gives is a function of its score and its
number of links. So it takes back exactly what it gave, sums do not depend on their order, and
errors do not add up, however long the history is. The score in the view is exactly the amount: from
512 on, only amounts that a double can represent occur.

Source: the local push of Andersen, Chung and Lang (FOCS'06), with edges that change as in Zhang,
Lofgren and Goel (KDD'16); whole numbers: ours.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cbp import State, TranslateRun, View
from cbp.errors import DefinitionError, Mistake
from stages.fixpoint import SWEEPS_MAX, LinkSums, fixpoint
from stages.link_arrays import CHANGED, WAYS, LinkChanges, LinkTable, Reader, reads_whole
from stages.links_in_memory import HeldGraph, OutLinks
from stages.nodes import Bools, Floats, Int64s, Nodes, array_of
from stages.spanning_forest import once

ONE = 1 << 44
"""Units in a score of 1: amounts are whole multiples of 2**-44."""

SCORE_MAX = 1 << 18
"""Largest score; 64 bits cannot hold a larger one together with what is added to it."""

ERROR_MIN = 2e-12
"""Least `error` that rounding permits, with a damping of 0.85 and about ten links per node."""

PUSHES_MAX = 100_000
"""Most rounds of pushes in a run: about a hundred times as many as a damping of 0.99 needs."""

SWEPT = "over all links"
"""What a run by sweeps returns; see `TranslateRun.ways`."""

_SWEEP_SHARE = 16
"""Once one node in this many pushes, a sweep costs less."""

_PUSHED_SHARE = 16
"""Sweeps end once at most one node in this many still lacks something; these are left to pushes."""

_DIGITS = 2.0**-50
"""Relative error of a sum of doubles: a sweep ignores residuals below it."""

_COLUMNS = ("residual", "enters", "leaves")


class ResidualsArrow(TranslateRun):
    """Keep a score of every node that has a link.

    A subclass defines the base score of nodes, and the part of a score that each link gets; all
    links together get at most the share `damping` of a score.

    Shape:
        edges: the changes of a view with the columns `src` and `dst`; the same edge twice is one
            link. With `changes=False`, records `(src, dst, gone BOOLEAN)`: the last one of two
            nodes counts.
        ranks: a view `(node, score DOUBLE)` with the key `node`: the nodes that have an edge.

    Args:
        damping: See above; in (0, 1).
        error: Largest mean over all nodes of the difference between a score and the right one.

    Attributes:
        pushed, swept: Largest error of a score after pushes and after sweeps, in units.
    """

    ways = (
        f"{WAYS}; then, or once at least one of {_SWEEP_SHARE} nodes would push, over all links, "
        "by sweeps"
    )

    def __init__(
        self, damping: float = 0.85, error: float = 1e-6, node: str = "BIGINT", changes: bool = True
    ) -> None:
        if not 0 < damping < 1:
            self._refuse("damping", damping, "a number between 0 and 1")
        least = ERROR_MIN * max(1.0, 0.15 / (1 - damping))
        if not error >= least:
            self._refuse("error", error, f"a number of at least {least}")
        self.damping, most = damping, int(error * (1 - damping) * ONE)
        self.pushed, self.swept = most // 2, most - most // 2
        self.key = f"node {node}"
        self.edges, self.links = LinkTable.declare(node, "", changes=changes, both=False)
        self.pages = State(
            f"node {node}, residual BIGINT, enters BIGINT, leaves BIGINT",
            keep=True,
            key="node",
            not_compared="residual",
        )
        self.ranks = View(f"node {node}, score DOUBLE", key="node", keep=True, not_compared="score")

    def base(self, nodes: Any) -> Any:
        """Return the base scores of nodes."""
        raise NotImplementedError

    def share(self, scores: Any, links: Any) -> Any:
        """Return the part that nodes give to each of their links; they have at least one."""
        raise NotImplementedError

    def translate(self, tables: Any, out: Any) -> str:
        """Apply added and removed edges, and push changes until they are small."""
        run = _Run(self, tables)
        changed = run.links.change(tables.edges, out)
        run.take(changed)
        way = CHANGED
        if run.links.is_whole:
            run.count(changed)
        if run.links.is_whole or not (run.relink(changed) and run.push()):
            run.sweep(changed)
            way = SWEPT
        run.write(out)
        run.remember(out)
        return way

    def _refuse(self, name: str, value: object, expected: str) -> None:
        where = f"{type(self).__name__}.{name}"
        message = f"got {value!r}; expected {expected}"
        raise DefinitionError(Mistake("parameter_invalid", where, message))


class _Run:
    """The scores of the nodes that a run meets; arrays are indexed by the number of a node."""

    def __init__(self, author: ResidualsArrow, tables: Any) -> None:
        self._author, self._tables = author, tables
        held: HeldGraph | None = tables.recall()
        self._held = None if reads_whole(tables.links.size, len(tables.edges)) else held
        self.nodes = self._held.nodes if self._held else Nodes()
        self.links = LinkTable(tables.links, self.nodes, both=False)
        unread = () if self._held else (tables.ranks, tables.pages)
        self._readers = [Reader(one, self.nodes) for one in unread]
        self._old = np.zeros((1 + len(_COLUMNS), 0), np.int64)
        self._now = self._old
        if self._held:
            self._now, self._old = self._held.rows, self._held.rows.copy()

    def take(self, changed: LinkChanges) -> None:
        """Apply the changes to the links in memory."""
        if self._held:
            self._held.change(*_moved(changed))

    def _leading(self, numbers: Int64s) -> tuple[Int64s, Int64s]:
        """Return the links of nodes: the index of each one's node in `numbers`, and its end."""
        if self._held:
            return self._held.out.of(numbers)
        at, links = self.links.of(numbers)
        return at, self.links.other[links]

    def count(self, changed: LinkChanges) -> tuple[Int64s, Int64s, Int64s]:
        """Update the numbers of links; return both ends of changed links, and 1 or -1 (removed)."""
        sign = (changed.mine > 0).astype(np.int64) - (changed.had_mine > 0)
        moved = np.flatnonzero(sign)
        node, other, sign = changed.node[moved], changed.other[moved], sign[moved]
        self._know(np.concatenate([node, other]))
        np.add.at(self._leaves, node, sign)
        np.add.at(self._enters, other, sign)
        return node, other, sign

    def relink(self, changed: LinkChanges) -> bool:
        """Update what nodes with changed links give to each of their links.

        Return whether that was done; if not, so many nodes would push that sweeps cost less.
        """
        node, other, sign = self.count(changed)
        givers = np.unique(node)
        before, after = self._gives(givers, self._old[3, givers]), self._gives(givers)
        large = np.abs(after - before) > self._author.pushed
        if self._is_much(int(self._leaves[givers[large]].sum())):
            return False
        at, to = self._leading(givers)
        self._know(to)
        np.add.at(self._residual, to, (after - before)[at])
        gave = np.zeros(len(self.nodes), np.int64)
        gave[givers] = before
        np.add.at(self._residual, other, sign * gave[node])
        new = np.flatnonzero(self._there & ~self._was_there)
        self._residual[new] += self._base(new)
        return True

    def _is_much(self, nodes: int) -> bool:
        return _SWEEP_SHARE * nodes >= int(self._tables.pages.size)

    def push(self) -> bool:
        """Add residuals to scores, and pass them on, until none is above the threshold.

        Return whether that was done; if not, so many nodes have to push that sweeps cost less.
        """
        for _ in range(PUSHES_MAX):
            pushers, moved = self._pushers()
            if not len(pushers):
                return True
            if self._is_much(len(pushers)):
                return False
            at, to = self._leading(pushers)
            self._know(to)
            before = self._gives(pushers)
            self._units[pushers] += moved
            self._residual[pushers] -= moved
            np.add.at(self._residual, to, (self._gives(pushers) - before)[at])
        raise self._unending(PUSHES_MAX)

    def sweep(self, changed: LinkChanges) -> None:
        """Sweep over all links until no score lacks more than the threshold; drop the residuals."""
        held = self._held or self._all_links(changed)
        sums, many = held.sums, len(self.nodes)
        self._know(np.arange(many), whole=True)
        author, there, was_there = self._author, self._there, self._was_there
        every, base = np.flatnonzero(there), np.zeros(many)
        base[every] = self._base(every) / ONE
        # Without links, a node gives to no other, whatever its share is.
        links = np.maximum(self._leaves, 1).astype(np.float64)

        def flow(scores: Floats) -> Floats:
            """Let each node give what follows from its new score, as soon as it is known."""
            given, reached = np.array(author.share(scores, links), np.float64), base.copy()

            def renew(first: int, last: int, came: Floats) -> None:
                reached[first:last] += came
                given[first:last] = author.share(reached[first:last], links[first:last])

            sums.of(given, renew)
            return reached

        old, near = self._units.astype(np.float64), author.swept // 4
        scores = np.where(was_there, old / ONE, base / (1 - author.damping))
        few = many // _PUSHED_SHARE
        units = np.rint(fixpoint(flow, scores, author.swept / 2 / ONE, few=few) * ONE)
        units = np.where(there & was_there & (np.abs(units - old) <= near), old, units)
        shares = _whole(author.share(units / ONE, links))
        reached, asked = base * ONE + sums.of(shares), np.arange(many)
        large = asked
        for _ in range(SWEEPS_MAX):
            if not float(np.abs(units[large]).max(initial=0.0)) <= SCORE_MAX * ONE:
                raise _too_large()
            came = reached[asked]
            lacks = np.abs(came - units[asked])
            large = asked[(lacks > author.swept) & (lacks > _DIGITS * np.abs(came))]
            if not len(large):
                self._now[0], self._now[1] = units.astype(np.int64), 0
                return
            units[large] = reached[large]
            more = _whole(author.share(units[large] / ONE, links[large])) - shares[large]
            shares[large] += more
            at, to = held.out.of(large)
            np.add.at(reached, to, more[at])  # exact, since they are whole numbers
            asked = once(to, many)
        raise self._unending(SWEEPS_MAX)

    def _all_links(self, changed: LinkChanges) -> HeldGraph:
        if self.links.is_whole:
            _, _, node = self.links.every()
            return self._arranged(node, self.links.other)
        records = self._tables.links.all()
        node, other = (array_of(records[name]) for name in ("node", "other"))
        firsts = np.flatnonzero(np.append(len(node) > 0, node[1:] != node[:-1]))
        src = np.repeat(self.nodes.numbers(node[firsts]), np.diff(firsts, append=len(node)))
        dst = self.nodes.numbers(other)
        held = self._arranged(src, dst)
        held.change(*_moved(changed))
        return held

    def _arranged(self, src: Int64s, dst: Int64s) -> HeldGraph:
        """Arrange all links, and keep them for the next run."""
        many = len(self.nodes)
        sums, out = LinkSums(src, dst, many), OutLinks(src, dst, many)
        self._held = HeldGraph(self.nodes, self._now, sums, out)
        return self._held

    def remember(self, out: Any) -> None:
        """Keep all links and scores in memory, if all were read."""
        if self._held:
            self._now[:, ~self._there] = 0
            self._held.rows = self._now
            if self._held.is_fresh:
                out.remember(self._held, self._held.bytes)

    def write(self, out: Any) -> None:
        there, ids = self._there, self.nodes.ids
        new = there & ~self._was_there
        changed = there & (new | (self._now[1:] != self._old[1:]).any(axis=0))
        columns = dict(zip(_COLUMNS, self._now[1:, changed], strict=True))
        out.pages({"node": ids[changed], **columns})
        gone = {"node": ids[self._was_there & ~there]}
        out.pages.delete(gone)
        moved = there & (new | (self._units != self._old[0]))
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

    def _base(self, numbers: Int64s) -> Int64s:
        base = np.asarray(self._author.base(self.nodes.ids[numbers]), np.float64)
        return np.rint(base * ONE).astype(np.int64)

    def _gives(self, numbers: Int64s, leaves: Int64s | None = None) -> Int64s:
        """Return what nodes give to each of their links, in units."""
        leaves, units = self._leaves[numbers] if leaves is None else leaves, self._units[numbers]
        if (np.abs(units) > SCORE_MAX * ONE).any():
            raise _too_large()
        gives = np.zeros(len(numbers), np.int64)
        some = np.flatnonzero(leaves > 0)
        share = self._author.share(units[some] / ONE, leaves[some])
        gives[some] = np.rint(np.asarray(share, np.float64) * ONE).astype(np.int64)
        return gives

    def _pushers(self) -> tuple[Int64s, Int64s]:
        """Return the nodes whose residual is too large, and by how much their scores move."""
        pushers = np.flatnonzero((np.abs(self._residual) > self._author.pushed) & self._there)
        units = self._units[pushers]
        exact = (units + self._residual[pushers]).astype(np.float64).astype(np.int64)
        moves = exact != units  # otherwise a double cannot represent the difference
        return pushers[moves], (exact - units)[moves]

    def _unending(self, rounds: int) -> ArithmeticError:
        message = (
            f"residuals are still above the threshold after {rounds} rounds. Either share() gives "
            f"away more of a score than damping={self._author.damping} allows, or the value of the "
            "parameter `error` is too small"
        )
        return ArithmeticError(message)

    def _know(self, numbers: Int64s, *, whole: bool = False) -> None:
        """Read the scores of nodes, unless they are known; with `whole`, all there are."""
        reads = [one.read(numbers, whole=whole) for one in self._readers]
        records = [read[1] for read in reads if read is not None]
        places = [self.nodes.numbers(array_of(one["node"])) for one in records]
        more = len(self.nodes) - self._now.shape[1]
        if more or self._now is self._old:
            blank = np.zeros((len(self._old), more), np.int64)
            self._old, self._now = (
                np.concatenate([one, blank], axis=1) for one in (self._old, self._now)
            )
        for mine, one in zip(places, records, strict=True):
            if "score" in one.column_names:
                units = np.rint(array_of(one["score"]) * ONE).astype(np.int64)
                self._old[0, mine] = self._now[0, mine] = units
                continue
            for at, name in enumerate(_COLUMNS, 1):
                self._old[at, mine] = self._now[at, mine] = array_of(one[name])


def _moved(changed: LinkChanges) -> tuple[LinkChanges, LinkChanges]:
    had, has = changed.had_mine > 0, changed.mine > 0
    return changed.at(has & ~had), changed.at(had & ~has)


def _whole(shares: Any) -> Floats:
    return np.rint(np.asarray(shares, np.float64) * ONE)


def _too_large() -> OverflowError:
    return OverflowError(f"a score is greater than {SCORE_MAX}, the largest score that can be kept")
