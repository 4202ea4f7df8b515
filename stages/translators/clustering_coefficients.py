"""Clustering coefficients of a growing graph: how many of a node's neighbours are linked.

The coefficient of a node with N neighbours and E edges among them is 2E / (N(N-1)); 0 for N < 2.

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

    A node keeps its neighbours, and theirs as far as it got messages about them. When it gets a
    neighbour, it sends a message to all of its neighbours; they apply it in the next epoch and
    emit their coefficient. Self-loops and repeated edges change nothing.

    Correction of the paper's figure 7: the node also tells each *new* neighbour about its *old*
    ones, since those were announced before the new one could receive messages. Without that,
    several increments give wrong coefficients.

    Invariant: state, and the last coefficient per node, are the same however the edges are split
    into increments, even if these arrive while messages are under way: when a node gets the second
    of two neighbours, it tells each of them about the other.

    Shape:
        edges: `(src, dst)`, to both ends.
        graph (state): `(node, neighbour, theirs)`, `theirs` ascending.
        fof (messages): plain: `(target, src, dst)`: src has the neighbour dst. Multicast:
            `(src, dst, audience)`: one record per neighbour, whatever the number of receivers.
        co: `(node, co)`, for the nodes that got a message.

    Args:
        multicast: Send each message once, to the address to which all neighbours are bound,
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
        """Add new neighbours and send messages about them; apply the messages of others."""
        theirs = {row.neighbour: row.theirs for row in group.graph}
        ends = {end for edge in group.edges for end in edge} - {key.node}
        old, new = sorted(theirs), sorted(ends - theirs.keys())
        theirs.update((node, []) for node in new)
        if new:
            self._send(out, key.node, old, new)
        learned: dict[int, set[int]] = defaultdict(set)
        for news in group.fof:
            learned[news.src].add(news.dst)
        for neighbour, more in learned.items():
            theirs[neighbour] = sorted(more.union(theirs[neighbour]))
        if learned:
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
    """Return 2E / (N(N-1)); every edge was announced by both of its ends."""
    n = len(theirs)
    twice = sum(len(theirs.keys() & known) for known in theirs.values())
    return twice / (n * (n - 1)) if n > 1 else 0.0
