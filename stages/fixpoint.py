"""Scores that flow along all links of a graph until they no longer change: sweeps over arrays.

    scores -> what nodes give -> LinkSums.of -> what scores lack -> next scores, extrapolated

For runs that reach most of a graph. Sweeps that only add what scores lack need about a hundred
rounds. Here the next scores are extrapolated from the last few sweeps (Anderson mixing), so a third
or a quarter of these rounds is enough on real graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from stages.nodes import Floats, Int64s
from stages.spanning_forest import spans

Singles = npt.NDArray[np.float32]

SWEEPS_MAX = 10_000
"""Most sweeps, some hundred times what a damping of 0.85 needs."""

_MIXED = 6
"""Earlier sweeps that are mixed into one."""

_LOOKED_AT = 60_000
"""About how many scores decide in which shares sweeps are mixed; all would give the same shares."""

_STALE = 4
"""After this many sweeps in a row without progress, doubles have no more digits."""

_PART = 1 << 18
"""Links of a part. Its nodes give by their new scores before the next part, while still cached."""

_HUB = 32
"""The links of nodes with more than this many are summed node by node."""


@dataclass(frozen=True)
class _Part:
    """The links that lead to a range of nodes.

    `rows` are the nodes with links that are no hubs, those with the most links first. The first
    array of `columns` has the node where the first link of each row begins; the second array is for
    the second link of the rows that have two, and so on. `src` has the nodes where the links of
    hubs begin; the links of each hub begin there at `starts`.
    """

    first: int
    last: int
    rows: Int64s
    columns: list[Int64s]
    hubs: Int64s
    starts: Int64s
    src: Int64s

    def sums(self, gives: Floats) -> Floats:
        sums = np.zeros(self.last - self.first)
        if self.columns:
            came = gives.take(self.columns[0])
            for column in self.columns[1:]:
                came[: len(column)] += gives.take(column)
            sums[self.rows - self.first] = came
        if len(self.hubs):
            given = gives.take(self.src)
            sums[self.hubs - self.first] = np.add.reduceat(given, self.starts)
        return sums


@dataclass(frozen=True)
class _Beside:
    """Links that were added (sign 1) and removed (-1) since a part was made.

    Attributes:
        rows: The nodes to which they lead, from the first one of the range.
        starts: Where the links of each begin in `src`.
    """

    rows: Int64s
    starts: Int64s
    src: Int64s
    signs: Floats

    @classmethod
    def of(cls, links: Int64s, first: int) -> _Beside | None:
        """Return the changed links of a part that begins with node `first`; `None` without any.

        `links` has the nodes where they end, ascending, those where they begin, and their signs.
        """
        dst, src, signs = links
        if not len(dst):
            return None
        starts = np.flatnonzero(np.append(True, dst[1:] != dst[:-1]))
        return cls(dst[starts] - first, starts, src, signs.astype(np.float64))


class LinkSums:
    """Sums what links bring to nodes.

    All nodes are summed in parallel: one gather and one addition for the first link of all nodes,
    then for the second link, and so on. So a link of a node with few links costs no more than one
    of a node with many.
    """

    def __init__(self, src: Int64s, dst: Int64s, nodes: int) -> None:
        bits = max(1, nodes - 1).bit_length()
        codes = dst << bits
        codes |= src
        codes.sort()
        sizes = np.bincount(dst, minlength=nodes)
        codes &= (1 << bits) - 1
        starts = np.cumsum(sizes) - sizes
        cuts = np.searchsorted(starts, np.arange(0, len(codes), _PART))
        edges = np.unique(np.concatenate([[0], cuts, [nodes]])).tolist()
        self._parts = [self._part(codes, starts, sizes, *both) for both in pairwise(edges)]
        self.links, self._nodes, self._more = len(codes), nodes, np.empty((3, 0), np.int64)
        self._beside: list[_Beside | None] = [None] * len(self._parts)

    @property
    def changed(self) -> int:
        """Number of links added and removed since the parts were made."""
        return self._more.shape[1]

    @property
    def bytes(self) -> int:
        """Size in memory, in bytes."""
        return 8 * (self.links + self._nodes + 6 * self.changed)

    def change(self, new: tuple[Int64s, Int64s], gone: tuple[Int64s, Int64s], nodes: int) -> None:
        """Add and remove links; the time and memory of a sum grow with their number."""
        both = [(dst, src, np.full(len(src), sign)) for (src, dst), sign in ((new, 1), (gone, -1))]
        more = np.concatenate([self._more, *map(np.stack, both)], axis=1)
        self._more = more[:, np.argsort(more[0], kind="stable")]
        parts = [part for part in self._parts if part.first < self._nodes]
        none = np.empty(0, np.int64)
        if nodes > self._nodes:
            parts.append(_Part(self._nodes, nodes, none, [], none, none, none))
        cuts = np.searchsorted(self._more[0], [part.first for part in parts[1:]])
        beside = np.split(self._more, cuts, axis=1)
        self._parts = parts
        self._beside = [
            _Beside.of(one, part.first) for one, part in zip(beside, parts, strict=False)
        ]

    @staticmethod
    def _part(codes: Int64s, starts: Int64s, sizes: Int64s, first: int, last: int) -> _Part:
        rows = first + np.argsort(-sizes[first:last], kind="stable")
        below = -sizes[rows]
        hubs, few = (rows[: np.searchsorted(below, -most)] for most in (_HUB, 0))
        few, below = few[len(hubs) :], below[len(hubs) :]
        columns = [
            codes[starts[few[: np.searchsorted(below, -at)]] + at]
            for at in range(-int(below[0]) if len(few) else 0)
        ]
        src = codes[spans(starts[hubs], sizes[hubs])]
        return _Part(first, last, few, columns, hubs, np.cumsum(sizes[hubs]) - sizes[hubs], src)

    def of(self, gives: Floats, renew: Callable[[int, int, Floats], None] | None = None) -> Floats:
        """Return for each node the sum of what nodes give to each of their links.

        The sums do not depend on the order in which links were given; those of whole numbers are
        exact below 2**53. `renew` is called for one range of nodes after the other, with their
        sums; it can change what these nodes give from then on.
        """
        parts = [np.empty(0)]
        for part, beside in zip(self._parts, self._beside, strict=True):
            parts.append(part.sums(gives))
            if beside:
                parts[-1][beside.rows] += np.add.reduceat(
                    gives[beside.src] * beside.signs, beside.starts
                )
            if renew:
                renew(part.first, part.last, parts[-1])
        return np.concatenate(parts)


def fixpoint(
    flow: Callable[[Floats], Floats], scores: Floats, most: float, *, few: int = 0
) -> Floats:
    """Return scores that differ from the right ones by at most `most`, except for a `few` scores.

    `flow` returns the right score of each node, given the scores of all; it must reduce the sum of
    all differences. If sweeps cannot reach `most`, the differences are as small as they can get.
    """
    step = 1 + len(scores) // _LOOKED_AT
    moves = np.empty((_MIXED, len(scores)), np.float32)  # single precision is enough
    drops = np.empty((_MIXED, len(scores[::step])), np.float32)
    products = np.empty((_MIXED, _MIXED))
    best, kept, used, stale = np.inf, (scores, scores), 0, 0
    last: tuple[Floats, Singles] | None = None
    for _ in range(SWEEPS_MAX):
        reached = flow(scores)
        lacks = _less(reached, scores, np.empty(len(scores), np.float32))
        sizes = np.abs(lacks)
        total = float(sizes.sum())
        if not total < best:  # also if it is NaN
            last, used, stale, scores = None, 0, stale + 1, kept[1]
            if stale > _STALE:
                break
            continue
        best, kept, stale = total, (scores, reached), 0
        if np.count_nonzero(sizes > most) <= few:
            break
        lacks = lacks[::step]
        if last is None:
            last, scores = (reached, lacks), reached
            continue
        at, some = used % _MIXED, min(used + 1, _MIXED)
        _less(reached, last[0], moves[at])
        _less(lacks, last[1], drops[at])
        products[at, :some] = products[:some, at] = drops[:some] @ drops[at]
        shares = np.linalg.lstsq(products[:some, :some], drops[:some] @ lacks, rcond=None)[0]
        scores = reached - shares.astype(np.float32) @ moves[:some]
        last, used = (reached, lacks), used + 1
    return kept[0]


def _less(left: npt.NDArray[Any], right: npt.NDArray[Any], out: Singles) -> Singles:
    with np.errstate(over="ignore", invalid="ignore"):  # the caller notices: the sum is not finite
        less: Singles = np.subtract(left, right, out=out, casting="same_kind")
        return less
