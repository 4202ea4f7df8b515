"""Strongly connected components of a whole graph, on arrays.

A component has the nodes that its least node reaches and is reached from. Both sets are found for
all nodes together: each node passes on the least node that it knows, along all edges, and jumps to
what that node knows. So a path of a thousand nodes takes about ten rounds. Nodes that a lesser one
reaches without a way back remain; they are a smaller graph, in which no edge joins nodes with
different answers. Nodes are ranked at random, so that few such passes are needed in any graph.

Source: colouring, Orzan, "On Distributed Verification and Verified Distribution" (2004); jumping as
in Shiloach and Vishkin's components (1982).
"""

from __future__ import annotations

import numpy as np

from stages.nodes import Int64s


def strong_components(many: int, src: Int64s, dst: Int64s) -> Int64s:
    """Return for each of `many` nodes (0, 1, ...) the least that it reaches and is reached from."""
    rank = np.random.default_rng(many).permutation(many)
    src, dst, part = rank[src], rank[dst], np.arange(many)
    while len(src):
        is_left = np.zeros(many, np.bool_)
        is_left[src] = is_left[dst] = True
        nodes = np.flatnonzero(is_left)
        place = np.cumsum(is_left) - 1
        from_, to = place[src], place[dst]
        first = _least_before(len(nodes), from_, to)
        within = first[from_] == first[to]
        src, dst, from_, to = src[within], dst[within], from_[within], to[within]
        is_found = _least_before(len(nodes), to, from_) == first
        part[nodes[is_found]] = nodes[first[is_found]]
        rest = ~is_found[from_]
        src, dst = src[rest], dst[rest]
    least = np.full(many, many)
    np.minimum.at(least, part[rank], np.arange(many))
    labels: Int64s = least[part[rank]]
    return labels


def _least_before(many: int, src: Int64s, dst: Int64s) -> Int64s:
    """Return for each node the least node from which it is reached, which can be itself."""
    least, moved = np.arange(many), np.ones(many, np.bool_)
    while moved.any():
        before, some = least.copy(), moved[src]
        np.minimum.at(least, dst[some], before[src[some]])
        least = least[least]
        moved = least != before
    return least
