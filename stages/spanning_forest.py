"""The components of a whole graph as arrays, and a spanning forest of each.

    links -> united -> the least node of the component of each node
    links -> ForestSearch.grow -> for each node, the neighbor that it hangs under

Both work in rounds over whole arrays. `united` hooks the larger of two labels under the smaller
one, and follows labels to their ends; this takes about log(nodes) rounds, however long paths are.
`grow` searches level by level, in as many rounds as the forest is deep; each examines the links of
the nodes that were reached last, or those of the nodes that are left.

Source: hooking and pointer jumping as in Shiloach and Vishkin (J. Algorithms 3, 1982); the choice
of a side for each level as in Beamer, Asanovic and Patterson (SC'12).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.nodes import Bools, Int64s

_SCAN_SHARE = 8
"""Scanning this many nodes for those that are left costs as much as examining one link."""

_SAMPLED = 2
"""Links per node that are examined first, in a graph with many more."""


def spans(starts: Int64s, sizes: Int64s) -> Int64s:
    """Return the indexes of some spans, one span after the other."""
    firsts = np.repeat(starts - np.cumsum(sizes) + sizes, sizes)
    firsts += np.arange(len(firsts))
    return firsts


def united(many: int, left: Int64s, right: Int64s) -> Int64s:
    """Return the least node of each node's component; links are given in any direction."""
    label = np.arange(many)
    some = len(left) // (_SAMPLED * max(1, many))
    if some > 1:  # a sample of links unites most nodes
        label = _united(label, left[::some], right[::some])
    return _united(label, left, right)


def _united(label: Int64s, left: Int64s, right: Int64s) -> Int64s:
    """Return the least node of each node's component; `label` has those by some of the links."""
    while True:
        left, right = label[left], label[right]
        apart = left != right
        if not apart.any():
            return label
        left, right = left[apart], right[apart]
        np.minimum.at(label, np.maximum(left, right), np.minimum(left, right))
        before = label
        label = label[label]
        while not np.array_equal(label, before):
            before, label = label, label[label]


@dataclass(frozen=True)
class ForestSearch:
    """Attaches nodes to neighbors that are already in a forest.

    Attributes:
        starts, sizes: Positions of the links of each node in `other`.
        other: The other node of each link; every link occurs from both of its ends.
    """

    starts: Int64s
    sizes: Int64s
    other: Int64s

    def grow(self, is_in: Bools, is_left: Bools) -> tuple[Int64s, Int64s]:
        """Return the wanted nodes that paths of wanted nodes reach, and the neighbor of each.

        A node is attached to the least of its neighbors on the previous level, from whichever side
        a level is searched. `is_left` says which nodes are wanted; found ones are added to `is_in`.
        """
        found, under = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        least = np.full(len(is_in), len(is_in))
        front, left = np.flatnonzero(is_in), int(self.sizes[is_left].sum())
        while len(front) and left:
            if int(self.sizes[front].sum()) <= left + len(is_in) // _SCAN_SHARE:
                at, links = self._links(front)
                to = self.other[links]
                fresh = np.flatnonzero(is_left[to] & ~is_in[to])
                to, near = to[fresh], front[at[fresh]]
            else:
                some = np.flatnonzero(is_left & ~is_in)
                at, links = self._links(some)
                near = self.other[links]
                fresh = np.flatnonzero(is_in[near])
                to, near = some[at[fresh]], near[fresh]
            np.minimum.at(least, to, near)
            is_in[to] = True
            front = once(to, len(is_in))
            left -= int(self.sizes[front].sum())
            found.append(front)
            under.append(least[front])
        return np.concatenate(found), np.concatenate(under)

    def _links(self, nodes: Int64s) -> tuple[Int64s, Int64s]:
        sizes = self.sizes[nodes]
        return np.repeat(np.arange(len(nodes)), sizes), spans(self.starts[nodes], sizes)


def once(numbers: Int64s, many: int) -> Int64s:
    """Return the distinct numbers, ascending; all are below `many`."""
    if _SCAN_SHARE * len(numbers) < many:
        return np.unique(numbers)
    return np.flatnonzero(np.bincount(numbers, minlength=many))


def best_of(label: Int64s, many: int, values: Any, *, largest: bool) -> tuple[Any, Bools]:
    """Return the best value of each label, and which labels have one.

    Labels are below `many`; values have any type with an order.
    """
    every, rank = np.unique(values, return_inverse=True)
    rank = len(every) - 1 - rank if largest else rank
    best = np.full(many, len(every))
    np.minimum.at(best, label, rank)
    has = best < len(every)
    best[~has] = 0
    ranked = every[::-1] if largest else every
    return (ranked[best] if len(every) else np.empty(many, every.dtype)), has
