"""PageRank of a growing graph: only the pages that a new link affects are computed again.

        edges -> [ page: links, rank, inflow ] -> pages
                    |  '-- weights, omega, ranks --'     (loopbacks)
                  moved -> [ verdict ] -> converged

A round has four phases, one after the other; new edges wait until the round is over:

1. *edges*: pages with new links, and new pages, join G, the set of affected pages.
2. *weights*: an upper estimate of the change of a rank is sent along the links. If a page gets
   more than the threshold, it joins G too. A page passes the estimate on once, when it joins.
3. *omega*: pages of G take back what they gave to other pages. Then the inflow of each page comes
   only from the supernode Omega, that is, all pages outside of G. Pages of G also learn which of
   their links stay in G.
4. *ranks*: pages of G compute their ranks until the sum of all changes is small. Then *converged*
   reaches all of G; its pages emit their ranks and give to others again. Pages outside of G keep
   their ranks, and are not called.

The rank of page v, out of n pages, is 1-a + a * (sum of rank(u)/links(u) over links u -> v, + D/n),
where D is the rank of all dangling pages. The mean rank is 1. Except for D/n, a rank does not
depend on n, so that pages outside of G keep their ranks when pages are added. Divide by n for the
usual PageRank.

Source: CBP (SoCC'10), section 3.1.2, figures 8 and 9. The paper leaves some parts out; these are
ours: the weights and the start weight, the inflow of Omega, and one more group for dangling pages.
The paper's first run broadcasts to all pages; here all pages are in G, and are reached by its
address.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import fsum
from typing import Any

from cbp import (
    All,
    Input,
    Loopback,
    Multicast,
    Output,
    Phase,
    Phases,
    State,
    Translate,
    route,
)
from cbp.errors import DefinitionError, Mistake

__all__ = ["IncrementalPageRank"]

EVERY_PAGE = All("nodes")
EVERY_MEMBER = All("members")
AFFECTED = Multicast("affected")

ROUNDING = 1e-6
"""Relative error of ranks at threshold 0, with the default tolerance of the verdict."""


def _ends(edge: Any) -> list[int]:
    return [edge.src, edge.dst]


def _every_page(_: Any) -> All:
    return EVERY_PAGE


def _every_member(_: Any) -> All:
    return EVERY_MEMBER


def _weighed(weight: Any) -> Any:
    return EVERY_PAGE if weight.to_all else weight.target


def _multicast(rank: Any) -> Any:
    return AFFECTED if rank.kind == "shared" else rank.target


def _broadcast(rank: Any) -> Any:
    return EVERY_PAGE if rank.kind == "shared" else rank.target


@dataclass(slots=True)
class _Page:
    """The state of a page; `inflow` is all that others gave, `shared` is the latest D/n."""

    node: int
    rank: float = 1.0
    inflow: float = 0.0
    shared: float = 0.0
    weight: float = 0.0
    affected: bool = False
    round: int = 0
    links: list[int] = field(default_factory=list)
    inside: list[int] = field(default_factory=list)
    born: bool = True


class IncrementalPageRank(Translate):
    """Keep the rank of every page; see the module's header.

    The group of the null key is the *whole*: it holds the number of pages, and the rank of
    dangling pages, which give equally to all pages. It collects what dangling pages of G send,
    and sends the mean to G in the next epoch.

    The state `members` has a record for each page with `affected`. So an `ALL` limited to it
    reaches G in a later epoch, and costs only as much as G is large.

    Invariant: between rounds a page's `inflow` is the sum of rank/links over the pages that
    link to it, and the whole's `dangling` is the sum of the ranks of dangling pages, up to
    rounding. At threshold 0 the ranks are those of a computation from scratch, up to the tolerance
    of the verdict.

    Args:
        damping: `a` above; in (0, 1).
        threshold: Pages whose rank is expected to change by no more than this (the mean rank is 1)
            stay out of G; at 0, all reachable pages are in G. Changes below the threshold add up.
            In our tests, threshold / (1-a) bounds the mean error that one change leaves.
        broadcast: Send ranks to every page instead of only to G; the baseline for multicast.
        within: Largest relative difference between the ranks of two runs on the same edges, for
            `cbp verify`; 0 means twice the error that the threshold leaves, threshold / (1-a) of
            each rank. Give more if the verdict's tolerance leaves more.
    """

    key = "node BIGINT"
    edges = Input("src BIGINT NOT NULL, dst BIGINT NOT NULL", route_by=route(_ends, "BIGINT"))
    weights = Loopback(
        "target BIGINT, amount DOUBLE, born BIGINT, to_all BOOLEAN",
        route_by=route(_weighed, "BIGINT"),
    )
    omega = Loopback("target BIGINT, src BIGINT, amount DOUBLE, joins BOOLEAN", route_by="target")
    nodes = State(
        "node BIGINT, rank DOUBLE, inflow DOUBLE, shared DOUBLE, weight DOUBLE, "
        "affected BOOLEAN, round BIGINT",
        not_compared="shared, weight, round",
    )
    links = State("node BIGINT, links ARRAY<BIGINT>, inside ARRAY<BIGINT>")
    members = State("node BIGINT")
    whole = State(
        "node BIGINT, n BIGINT, dangling DOUBLE, told DOUBLE, weight DOUBLE, round BIGINT",
        not_compared="told, weight, round",
    )
    pages = Output("node BIGINT, rank DOUBLE", key="node")
    moved = Output("round BIGINT, change DOUBLE")
    runnable = Phases(
        (
            Phase(("edges",), batch=0),
            Phase(("weights",), batch=0),
            Phase(("omega",), batch=0),
            Phase(("ranks",), until="converged", drop=("ranks",)),
        )
    )

    def __init__(
        self,
        damping: float = 0.85,
        threshold: float = 0.001,
        broadcast: bool = False,
        within: float = 0.0,
    ) -> None:
        if not 0 < damping < 1:
            _refuse("damping", damping, "a number between 0 and 1")
        if threshold < 0:
            _refuse("threshold", threshold, "0 or more")
        if not 0 <= within < 1:
            _refuse("within", within, "a number from 0 to below 1")
        self._damping, self._threshold = damping, threshold
        # Rounds, and changes below the threshold, depend on how the edges are split.
        near = within or min(0.99, 2 * threshold / (1 - damping) + ROUNDING)
        self.nodes = replace(self.nodes, tolerance=near)
        self.whole = replace(self.whole, tolerance=near)
        self.pages = replace(self.pages, tolerance=near)
        self.converged = Input(
            "round BIGINT",
            route_by=route(_every_page if broadcast else _every_member, "BIGINT"),
        )
        self.ranks = Loopback(
            "target BIGINT, src BIGINT, kind STRING, amount DOUBLE, round BIGINT",
            route_by=route(_broadcast if broadcast else _multicast, "BIGINT"),
        )

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Handle the events of one phase for a page, or for the whole."""
        if key.node is None:
            self._whole(group, out)
            return
        page = _read(key.node, group)
        # Most calls have records of one input only.
        if (edges := list(group.edges)) or page.born:
            self._add_edges(page, edges, out)
        if weights := list(group.weights):
            self._weigh(page, weights, out)
        if omega := list(group.omega):
            self._update_supernode(page, omega, out)
        for _ in group.converged:
            _reset(page, out)
        if page.affected:
            self._compute(page, list(group.ranks), out)
        _write(page, out)

    def _add_edges(self, page: _Page, edges: Iterable[Any], out: Any) -> None:
        """Add new links, and send weights for their effect; a new page counts as rank 1."""
        added = sorted({e.dst for e in edges if e.src == page.node} - set(page.links))
        if not added and not page.born:
            return
        if not page.affected:
            _join(page, out)
        before, after, amount = len(page.links), len(page.links) + len(added), page.rank
        for target in page.links:
            out.weights(target, self._damping * amount * (1 / before - 1 / after), 0, False)
        for target in added:
            out.weights(target, self._damping * amount / after, 0, False)
            out.omega(target, page.node, 0.0, False)
        dangles = (page.born and not after) or (not page.born and not before)
        if page.born or dangles:
            out.weights(None, self._damping * amount * dangles, int(page.born), False)
        page.links = sorted([*page.links, *added])

    def _weigh(self, page: _Page, weights: Iterable[Any], out: Any) -> None:
        """Join G if the sum of the weights exceeds the threshold, and pass it on."""
        page.weight += fsum(row.amount for row in weights)
        if page.affected or page.weight <= self._threshold:
            return
        _join(page, out)
        amount = self._damping * page.weight
        for target in page.links:
            out.weights(target, amount / len(page.links), 0, False)
        if not page.links:
            out.weights(None, amount, 0, False)

    def _update_supernode(self, page: _Page, omega: list[Any], out: Any) -> None:
        """Update the inflow; a page of G tells the pages of G that link to it that it is in G."""
        page.inflow += fsum(row.amount for row in omega)
        if page.affected:
            for row in omega:
                if row.src is not None:
                    out.ranks(row.src, page.node, "member", None, None)
            out.ranks(page.node, None, "start", None, None)
            if not page.links:
                out.ranks(None, None, "rank", page.rank, None)

    def _compute(self, page: _Page, ranks: list[Any], out: Any) -> None:
        """Compute the rank from the ranks of the last epoch, and send it to linked pages of G."""
        if not ranks:
            return
        if any(row.kind == "start" for row in ranks):
            page.inside = sorted(row.src for row in ranks if row.kind == "member")
        else:
            for row in ranks:
                if row.kind == "shared":
                    page.shared, page.round = row.amount, row.round
            given = fsum(row.amount for row in ranks if row.kind == "rank")
            before, a = page.rank, self._damping
            page.rank = 1 - a + a * (page.inflow + given + page.shared)
            out.moved(page.round, abs(page.rank - before))
        for target in page.inside:
            out.ranks(target, None, "rank", page.rank / len(page.links), None)
        if not page.links:
            out.ranks(None, None, "rank", page.rank, None)
        # So that this page is called, and gets the multicast, in every epoch of the round.
        out.ranks(page.node, None, "again", None, None)
        out.associate(page.node, AFFECTED.address)

    def _whole(self, group: Any, out: Any) -> None:
        _, n, dangling, counted, weight, round_ = next(group.whole, (None, 0, 0.0, 0.0, 0.0, 0))
        if weights := list(group.weights):
            before, n = n, n + sum(row.born for row in weights)
            weight += fsum(row.amount for row in weights) / n
            if before:
                weight += self._damping * dangling * (1 / before - 1 / n)
                if weight > self._threshold:
                    out.weights(None, weight, 0, True)
                    weight = 0.0
        omega = list(group.omega)
        dangling += fsum(row.amount for row in omega)
        if any(row.joins for row in omega):
            out.ranks(None, None, "start", None, None)
        if ranks := list(group.ranks):
            starts = any(row.kind == "start" for row in ranks)
            round_ += starts
            total = dangling + fsum(row.amount for row in ranks if row.kind == "rank")
            if not starts:
                out.moved(round_, self._damping * abs(total - counted))
            if starts or total != counted:
                out.ranks(None, None, "shared", total / n, round_)
            counted = total
        out.whole(None, n, dangling, counted, weight, round_)


def _refuse(name: str, came: float, expected: str) -> None:
    where = f"IncrementalPageRank.{name}"
    raise DefinitionError(Mistake("parameter_invalid", where, f"{came!r}; give {expected}"))


def _read(node: int, group: Any) -> _Page:
    page = _Page(node)
    for row in group.nodes:
        page = _Page(*row)
        page.born = False
    for row in group.links:
        page.links, page.inside = row.links, row.inside
    return page


def _write(page: _Page, out: Any) -> None:
    out.nodes(
        page.node, page.rank, page.inflow, page.shared, page.weight, page.affected, page.round
    )
    out.links(page.node, page.links, page.inside)
    if page.affected:
        out.members(page.node)


def _join(page: _Page, out: Any) -> None:
    """Make a page join G: take back what it gave to others, and have it called in phase omega."""
    page.affected = True
    if not page.born:
        _give(page, -page.rank, out, src=page.node)
    out.omega(None, None, 0.0, True)
    out.omega(page.node, None, 0.0, False)


def _give(page: _Page, amount: float, out: Any, *, src: int | None = None) -> None:
    """Add to the inflow of linked pages; a dangling page gives to the whole instead."""
    for target in page.links:
        out.omega(target, src, amount / len(page.links), False)
    if not page.links:
        out.omega(None, None, amount, False)


def _reset(page: _Page, out: Any) -> None:
    """Make a page leave G, and emit its new rank."""
    if page.affected:
        out.pages(page.node, page.rank)
        _give(page, page.rank, out)
        page.affected, page.weight, page.inside = False, 0.0, []
