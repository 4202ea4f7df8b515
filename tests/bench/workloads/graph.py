"""Seeded graphs with power-law degrees, and reference algorithms on a whole graph.

Links end at page r, counted from 0, with probability about (r + 1)^-2/3. This gives in-degrees
a tail of exponent 2.5, as in the web. Links begin at any page that has links. One page in twenty
has none (it dangles). Every page is an end of some link, so that the graph has all its pages.

Guaranteed: the same seed gives the same links. The links of a graph are distinct, and none is a
loop; links of an increment are not among the first ones
(tests/bench/workloads/test_graph.py).
Not guaranteed: two increments may draw the same link.

`ranks_of` is PageRank from scratch on one processor: the state that a benchmark begins with.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = [
    "Edges",
    "Graph",
    "Ranked",
    "coefficients_of",
    "edge_table",
    "neighbours_of",
    "ranks_of",
]

DANGLING_SHARE = 0.05
TAIL = 2 / 3
ENOUGH = 1e-12
"""`ranks_of` ends when no rank changes by more than this; the mean rank is 1."""

Ids = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Edges:
    """Links from `src[i]` to `dst[i]`."""

    src: Ids
    dst: Ids

    def __len__(self) -> int:
        return len(self.src)


@dataclass(frozen=True)
class Graph:
    """A graph of pages 0 to `nodes` with so many links; see the module header.

    Attributes:
        undirected: Links in both directions are the same link.
    """

    nodes: int
    edges: int
    seed: int = 0
    undirected: bool = False

    @cached_property
    def first(self) -> Edges:
        """The links that exist before any increment."""
        chance = np.random.default_rng([self.seed, 0])
        linking = np.arange(self._dangling, self.nodes)
        src = np.concatenate([linking, self._sources(chance, self._dangling)])
        dst = np.concatenate([self._ends(chance, len(linking)), np.arange(self._dangling)])
        dst = np.where(src == dst, (dst + 1) % self.nodes, dst)
        return self._filled(chance, self._codes(src, dst), self.edges, np.empty(0, np.int64))

    def more(self, number: int, count: int) -> Edges:
        """Return the new links of an increment, drawn from (seed, number) alone."""
        chance = np.random.default_rng([self.seed, 1, number])
        known = np.sort(self._codes(self.first.src, self.first.dst))
        return self._filled(chance, np.empty(0, np.int64), count, known)

    @property
    def _dangling(self) -> int:
        return int(self.nodes * DANGLING_SHARE)

    def _sources(self, chance: np.random.Generator, count: int) -> Ids:
        return chance.integers(self._dangling, self.nodes, count)

    def _ends(self, chance: np.random.Generator, count: int) -> Ids:
        # The inverse of the distribution: the integral of x^-2/3 is 3 x^1/3.
        drawn: Ids = (chance.random(count) ** (1 / (1 - TAIL)) * self.nodes).astype(np.int64)
        return drawn

    def _filled(self, chance: np.random.Generator, codes: Ids, count: int, known: Ids) -> Edges:
        """Draw until there are `count` distinct links that are not in `known`."""
        codes = _distinct(codes)[:count]
        while len(codes) < count:
            wanted = 2 * (count - len(codes)) + 8
            src, dst = self._sources(chance, wanted), self._ends(chance, wanted)
            drawn = self._codes(src, dst)[src != dst]
            codes = _distinct(np.concatenate([codes, drawn[~np.isin(drawn, known)]]))[:count]
        return Edges(codes // self.nodes, codes % self.nodes)

    def _codes(self, src: Ids, dst: Ids) -> Ids:
        """Return a number per link; for an undirected link, the same in both directions."""
        if self.undirected:
            src, dst = np.minimum(src, dst), np.maximum(src, dst)
        return src * self.nodes + dst


@dataclass(frozen=True, slots=True)
class Ranked:
    """PageRank of a whole graph; the mean rank is 1.

    Attributes:
        rank: Rank of every page.
        inflow: What other pages give to each page: the sum of rank / links.
        dangling: The sum of the ranks of pages without links.
    """

    rank: Reals
    inflow: Reals
    dangling: float


def ranks_of(edges: Edges, nodes: int, *, damping: float = 0.85) -> Ranked:
    """Iterate from rank 1 until no rank changes by more than `ENOUGH`."""
    links = np.bincount(edges.src, minlength=nodes)
    dangles = links == 0
    share = 1.0 / np.maximum(links, 1)[edges.src]
    rank: Reals = np.ones(nodes)
    while True:
        inflow: Reals = np.bincount(edges.dst, rank[edges.src] * share, nodes).astype(np.float64)
        dangling = float(rank[dangles].sum())
        after: Reals = 1 - damping + damping * (inflow + dangling / nodes)
        if np.abs(after - rank).max() <= ENOUGH:
            return Ranked(rank, inflow, dangling)
        rank = after


def neighbours_of(edges: Edges, nodes: int) -> list[set[int]]:
    """Return the neighbours of every page; direction, repetition and loops do not matter."""
    neighbours: list[set[int]] = [set() for _ in range(nodes)]
    for one, other in zip(edges.src.tolist(), edges.dst.tolist(), strict=True):
        if one != other:
            neighbours[one].add(other)
            neighbours[other].add(one)
    return neighbours


def coefficients_of(edges: Edges, nodes: int) -> Reals:
    """Return the clustering coefficient of every page; 0 with fewer than two neighbours."""
    neighbours = neighbours_of(edges, nodes)
    values = np.zeros(nodes)
    for page, known in enumerate(neighbours):
        if len(known) > 1:
            pairs = sum(len(known & neighbours[other]) for other in known)
            values[page] = pairs / (len(known) * (len(known) - 1))
    return values


def edge_table(edges: Edges) -> pa.Table:
    """Return `(src BIGINT NOT NULL, dst BIGINT NOT NULL)`."""
    fields = [pa.field(name, pa.int64(), nullable=False) for name in ("src", "dst")]
    return pa.Table.from_arrays([edges.src, edges.dst], schema=pa.schema(fields))


def _distinct(codes: Ids) -> Ids:
    """Return every number once, in order of first occurrence."""
    _, first = np.unique(codes, return_index=True)
    distinct: Ids = codes[np.sort(first)]
    return distinct
