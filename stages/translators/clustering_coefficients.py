"""Clustering coefficients of a growing graph: how many of my neighbours know each other.

Of a node with N neighbours and E edges among them it is 2E / (N(N-1)); 0 for N < 2.

    edges -> [ node: neighbours, and theirs ] -> co
                  '---- friends of friends ---'      (a loopback)

Source: CBP (SoCC'10), section 3.1.1, figures 6 and 7; with a correction, see below.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from cbp import Input, Loopback, Multicast, Output, State, Translate, route

__all__ = ["ClusteringCoefficients"]


def _ends(edge: Any) -> list[int]:
    return [edge.src, edge.dst]


def _audience(news: Any) -> Multicast:
    return Multicast(news.audience)


class ClusteringCoefficients(Translate):
    """Keep the coefficient of every node whose neighbourhood changes; edges are undirected.

    A node keeps its neighbours and what it was told of theirs. When it gets a neighbour, it
    tells all of its neighbours so; they apply that in the next epoch and emit their
    coefficient. Correction of the paper's figure 7: it also tells each *new* neighbour of
    its *old* ones, which were announced before the new one listened; without it, several
    increments give wrong coefficients. Self-loops and repeated edges change nothing.

    Invariant: state, and the last coefficient per node, hold however the edges are split
    into increments, and when these arrive while messages are under way: whichever of two
    neighbours a node gets second, it tells each of the other.

    Shape:
        edges: `(src, dst)`, to both ends.
        graph (state): `(node, neighbour, theirs)`, `theirs` ascending.
        fof (messages): plain: `(target, src, dst)`: src has the neighbour dst. Multicast:
            `(src, dst, audience)`: one record per neighbour, whoever listens.
        co: `(node, co)`, of the nodes that were told something.

    Args:
        multicast: Send each piece of news once, to all neighbours that were bound to it,
            instead of one copy per neighbour.
    """

    key = "node BIGINT"
    edges = Input(
        "src BIGINT NOT NULL, dst BIGINT NOT NULL",
        route_by=route(_ends, "BIGINT"),
    )
    graph = State("node BIGINT, neighbour BIGINT, theirs ARRAY<BIGINT>")
    co = Output("node BIGINT, co DOUBLE", key="node")

    def __init__(self, multicast: bool = False) -> None:
        if multicast:
            self.fof = Loopback(
                "src BIGINT, dst BIGINT, audience STRING",
                route_by=route(_audience, "BIGINT"),
            )
            self._send = _send_to_audiences
        else:
            self.fof = Loopback("target BIGINT, src BIGINT, dst BIGINT", route_by="target")
            self._send = _send_to_each

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add new neighbours and tell of them; take in what others told."""
        theirs = {row.neighbour: row.theirs for row in group.graph}
        ends = {end for edge in group.edges for end in edge} - {key.node}
        old, new = sorted(theirs), sorted(ends - theirs.keys())
        theirs.update((node, []) for node in new)
        if new:
            self._send(out, key.node, old, new)
        told: dict[int, set[int]] = defaultdict(set)
        for news in group.fof:
            told[news.src].add(news.dst)
        for neighbour, more in told.items():
            theirs[neighbour] = sorted(more.union(theirs[neighbour]))
        if told:
            out.co(key.node, _coefficient(theirs))
        for neighbour in sorted(theirs):
            out.graph(key.node, neighbour, theirs[neighbour])


def _send_to_each(out: Any, node: int, old: Iterable[int], new: Iterable[int]) -> None:
    for added in new:
        for target in (*old, *new):
            out.fof(target=target, src=node, dst=added)
        for known in old:
            out.fof(target=added, src=node, dst=known)


def _send_to_audiences(out: Any, node: int, old: Iterable[int], new: Iterable[int]) -> None:
    everybody, newcomers = str(node), f"{node} new"
    for target in (*old, *new):
        out.associate(target, everybody)
    for added in new:
        out.associate(added, newcomers)
        out.fof(src=node, dst=added, audience=everybody)
    for known in old:
        out.fof(src=node, dst=known, audience=newcomers)


def _coefficient(theirs: Mapping[int, Iterable[int]]) -> float:
    """Return 2E / (N(N-1)); every edge is told by both of its ends."""
    n = len(theirs)
    twice = sum(len(theirs.keys() & known) for known in theirs.values())
    return twice / (n * (n - 1)) if n > 1 else 0.0
