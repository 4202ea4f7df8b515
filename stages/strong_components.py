"""Strongly connected components of a whole graph, on arrays.

A component is what the least of its nodes reaches, and is reached from. Both are found for all
nodes at once by passing on the least node that is known, along all edges, and by jumping to what
that node knows: a path of a thousand nodes takes some ten rounds. What is left over, nodes that a
lesser one leads to without a way back, is a smaller graph, in which no edge joins nodes with
different answers. Nodes are ranked by chance, so that few such rounds are needed in any graph.

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
    """Return the least node that leads to each node, or is it."""
    least, moved = np.arange(many), np.ones(many, np.bool_)
    while moved.any():
        before, some = least.copy(), moved[src]
        np.minimum.at(least, dst[some], before[src[some]])
        least = least[least]
        moved = least != before
    return least
