"""The links and scores of a graph, kept in memory from run to run, and brought up to date by each.

    run -> HeldGraph -> out.remember ... tables.recall -> HeldGraph.change -> run

A run that reaches most of a graph spends as long on reading and arranging its links as on all of
its sweeps. Few links change from run to run, so changes are stored beside the arranged links
(`LinkSums.change`, `OutLinks.change`). Once they are many, nothing is kept, and the next run that
needs all links reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stages.fixpoint import LinkSums
from stages.link_arrays import LinkChanges
from stages.nodes import Int32s, Int64s, Nodes, order_of
from stages.spanning_forest import spans

_CHANGED_SHARE = 8
"""Once one link in this many has changed, or one node in this many is gone, nothing is kept."""


class OutLinks:
    """The links that lead away from nodes; those of a changed node are stored again at the end."""

    def __init__(self, src: Int64s, dst: Int64s, nodes: int) -> None:
        self._sizes = np.bincount(src, minlength=nodes)
        self._starts = np.cumsum(self._sizes) - self._sizes
        in_order = dst if np.all(src[1:] >= src[:-1]) else dst[order_of(src)]
        self._other: Int32s = in_order.astype(np.int32)
        self._used = len(self._other)

    @property
    def bytes(self) -> int:
        """Size in memory, in bytes."""
        return int(self._other.nbytes + self._sizes.nbytes + self._starts.nbytes)

    def of(self, numbers: Int64s) -> tuple[Int64s, Int64s]:
        """Return the index in `numbers` and the end of each link of these distinct nodes."""
        sizes = self._sizes[numbers]
        links = spans(self._starts[numbers], sizes)
        return np.repeat(np.arange(len(numbers)), sizes), self._other[links].astype(np.int64)

    def change(self, new: LinkChanges, gone: LinkChanges, nodes: int) -> None:
        """Add and remove links."""
        more = np.zeros(nodes - len(self._sizes), np.int64)
        self._sizes, self._starts = (
            np.concatenate([one, more]) for one in (self._sizes, self._starts)
        )
        touched = np.unique(np.concatenate([new.node, gone.node]))
        at, other = self.of(touched)
        shift = nodes.bit_length()
        codes = touched[at] << shift | other
        stays = ~np.isin(codes, gone.node << shift | gone.other)
        codes = np.concatenate([codes[stays], new.node << shift | new.other])
        codes.sort()
        sizes = np.bincount(np.searchsorted(touched, codes >> shift), minlength=len(touched))
        if self._used + len(codes) > len(self._other):
            room = np.empty(len(self._other) // _CHANGED_SHARE + 2 * len(codes), np.int32)
            self._other = np.concatenate([self._other[: self._used], room])
        self._other[self._used : self._used + len(codes)] = codes & ((1 << shift) - 1)
        self._starts[touched] = self._used + np.cumsum(sizes) - sizes
        self._sizes[touched] = sizes
        self._used += len(codes)


@dataclass
class HeldGraph:
    """A graph in memory; arrays are indexed by the number of a node, removed ones included.

    `rows` are columns with the values of each node, 0 for a removed one. `sums` has the links that
    lead to nodes, `out` those that lead away from them.
    """

    nodes: Nodes
    rows: npt.NDArray[Any]
    sums: LinkSums
    out: OutLinks

    @property
    def bytes(self) -> int:
        """Size in memory, in bytes."""
        ids = 3 * self.nodes.ids.nbytes
        return int(ids + self.rows.nbytes + self.sums.bytes + self.out.bytes)

    @property
    def is_fresh(self) -> bool:
        """Whether it has changed so little since it was arranged that it is worth keeping."""
        there = int(np.count_nonzero(self.rows.any(axis=0)))
        is_full = _CHANGED_SHARE * (len(self.nodes) - there) <= len(self.nodes)
        return is_full and _CHANGED_SHARE * self.sums.changed <= self.sums.links

    def change(self, new: LinkChanges, gone: LinkChanges) -> None:
        """Add and remove links."""
        many = len(self.nodes)
        self.sums.change((new.node, new.other), (gone.node, gone.other), many)
        self.out.change(new, gone, many)
