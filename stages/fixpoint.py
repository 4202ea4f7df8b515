"""Scores that flow along all links of a graph at once, until they stay: sweeps over arrays.

    scores -> what nodes give -> LinkSums.of -> what scores lack -> better scores, by more than that

For loops of which a run comes to most of the graph. Sweeps that only add what scores lack need some
hundred rounds. Here the last few of them say where they lead to (Anderson's mixing), so a third or
a quarter of that is enough on real graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt

__all__ = ["SWEEPS_MAX", "LinkSums", "fixpoint"]

Floats = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]

SWEEPS_MAX = 10_000
"""Most sweeps, some hundred times what a damping of 0.85 needs."""

_MIXED = 3
"""Earlier sweeps that are mixed into one."""

_STALE = 4
"""Sweeps in a row that bring scores no nearer, after which doubles have no more digits."""

_BLOCK = 1 << 14
"""Links at a time, so that what they bring stays in the cache."""

_RENEWED = 8
"""Blocks after which nodes give what follows from their new scores."""


class LinkSums:
    """Sums what links bring to nodes; links are sorted by where they lead, so a sweep is one pass.

    Args:
        src: Number of the node where each link begins.
        dst: Number of the node where it ends.
        gone: Both of those of these links that are none any more, each once.
        nodes: How many nodes there are.
    """

    def __init__(self, src: Int64s, dst: Int64s, gone: tuple[Int64s, Int64s], nodes: int) -> None:
        bits = max(1, nodes - 1).bit_length()
        codes = dst << bits
        codes |= src
        codes.sort()
        codes = np.delete(codes, np.searchsorted(codes, (gone[1] << bits) | gone[0]))
        sizes = np.bincount(dst, minlength=nodes) - np.bincount(gone[1], minlength=nodes)
        codes &= (1 << bits) - 1
        self._src, self._nodes, self._to = codes, nodes, np.flatnonzero(sizes)
        sizes = sizes[self._to]
        starts = np.cumsum(sizes) - sizes
        cuts = np.searchsorted(starts, np.arange(0, len(codes), _BLOCK))
        blocks = np.unique(np.append(cuts, len(starts)))
        self._blocks = [
            (first, last, int(starts[first]), int(starts[last - 1] + sizes[last - 1]))
            for first, last in pairwise(blocks.tolist())
        ]
        self._starts = starts
        for first, last, start, _ in self._blocks:
            starts[first:last] -= start

    def of(self, gives: Floats, renew: Callable[[int, int, Floats], None] | None = None) -> Floats:
        """Return for each node the sum of what nodes give to each of their links.

        It does not depend on the order in which links were given; exact if these are whole numbers
        with sums below 2**53.

        Args:
            gives: What each node gives.
            renew: Called with a range of nodes and their sums, range after range; it may set what
                these nodes give from now on.
        """
        sums, done = np.zeros(self._nodes), 0
        for at, (first, last, start, stop) in enumerate(self._blocks, 1):
            given = gives.take(self._src[start:stop])
            sums[self._to[first:last]] = np.add.reduceat(given, self._starts[first:last])
            if renew and (at % _RENEWED == 0 or at == len(self._blocks)):
                upto = self._nodes if at == len(self._blocks) else int(self._to[last - 1]) + 1
                renew(done, upto, sums[done:upto])
                done = upto
        return sums


def fixpoint(flow: Callable[[Floats], Floats], scores: Floats, most: float) -> Floats:
    """Return scores that lack at most so much each, or as little as sweeps come to.

    Args:
        flow: Returns what the score of each node should be, by the scores of all; the sum of all
            differences must become less by it.
        scores: Where to begin.
        most: Largest difference of a score and what it should be.
    """
    moves, drops = np.empty((2, _MIXED, len(scores)), np.float32)
    products = np.empty((_MIXED, _MIXED))
    best, kept, used, stale = np.inf, (scores, scores), 0, 0
    last: tuple[Floats, Floats] | None = None
    for _ in range(SWEEPS_MAX):
        reached = flow(scores)
        lacks = reached - scores
        sizes = np.abs(lacks)
        total = float(sizes.sum())
        if not total < best:  # also where it is not a number
            last, used, stale, scores = None, 0, stale + 1, kept[1]
            if stale > _STALE:
                break
            continue
        best, kept, stale = total, (scores, reached), 0
        if float(sizes.max()) <= most:
            break
        if last is None:
            last, scores = (reached, lacks), reached
            continue
        at, some = used % _MIXED, min(used + 1, _MIXED)
        np.subtract(reached, last[0], out=moves[at], casting="same_kind")
        np.subtract(lacks, last[1], out=drops[at], casting="same_kind")
        products[at, :some] = products[:some, at] = drops[:some] @ drops[at]
        wanted = drops[:some] @ lacks.astype(np.float32)
        shares = np.linalg.lstsq(products[:some, :some], wanted, rcond=None)[0]
        scores = reached - shares.astype(np.float32) @ moves[:some]
        last, used = (reached, lacks), used + 1
    return kept[0]
