"""Verification of what runs in rounds: results as near as declared, and rounds not at all."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.model.verification import Request
from stages.flows import clustering, pagerank
from stages.translators.clustering_arrow import ClusteringArrow
from stages.translators.clustering_coefficients import ClusteringCoefficients
from stages.translators.incremental_pagerank import IncrementalPageRank
from stages.translators.pagerank_arrow import PageRankArrow
from stages.translators.pagerank_verdict import PageRankVerdict
from tests.controller.verified import verified, world_of
from tests.controller.world import World

EDGES = {"edges": {"schema": "src BIGINT NOT NULL, dst BIGINT NOT NULL"}}
CLUSTERING: dict[str, Any] = {
    "name": "clustering",
    "sources": EDGES,
    "stages": {
        "coefficients": {
            "translator": "clustering_coefficients",
            "parameters": {"multicast": True},
            "inputs": {"edges": "edges"},
            "buckets": 2,
        }
    },
}
PAGERANK: dict[str, Any] = {
    "name": "pagerank",
    "sources": EDGES,
    "stages": {
        "rank": {
            "translator": "incremental_pagerank",
            "parameters": {"threshold": 0.0, "within": 0.05},
            "inputs": {"edges": "edges", "converged": "verdict.converged"},
            "buckets": 2,
        },
        "verdict": {
            "translator": "pagerank_verdict",
            "parameters": {"tolerance": 0.01},
            "inputs": {"moved": "rank.moved"},
            "buckets": 2,
        },
    },
}

STATES = ("rank.nodes", "rank.links", "rank.members", "rank.whole")


BIAS = 0.0
"""A variable of the module: on the translator, a change of it would be noticed and refused."""


class Biased(IncrementalPageRank):
    """Gives pages a rank that is too large by a part of it; its rank is emitted, not passed on."""

    def translate(self, key: Any, group: Any, out: Any) -> None:
        super().translate(key, group, _Biased(out))


class _Biased:
    def __init__(self, out: Any) -> None:
        self._out = out

    def __getattr__(self, name: str) -> Any:
        return getattr(self._out, name)

    def pages(self, node: int, rank: float) -> None:
        self._out.pages(node, rank * (1 + BIAS))


@pytest.fixture
def world(tmp_path: Path, without_syncs: None) -> Iterator[World]:
    made = world_of(
        tmp_path,
        clustering_coefficients=ClusteringCoefficients,
        incremental_pagerank=Biased,
        pagerank_verdict=PageRankVerdict,
        pagerank_arrow=PageRankArrow,
        clustering_arrow=ClusteringArrow,
    )
    yield made
    made.close()


def linked(world: World, document: dict[str, Any], *, queued: bool) -> World:
    """Edges that come when nothing is left to do, or all of them before the first run."""
    world.controller.register(document)
    for edges in ([(1, 2), (2, 3), (3, 1)], [(1, 3), (3, 4), (4, 1)]):
        world.arrive(document["name"], "edges", *edges)
        world.clock.advance(1)
        if not queued:
            world.ticks(300)
    world.ticks(500)
    return world


@pytest.mark.part(every=3)
@pytest.mark.parametrize(
    ("document", "split", "queued"),
    [
        (CLUSTERING, "increments", False),
        (CLUSTERING, "increments", True),
        (CLUSTERING, "at_once", True),
        (PAGERANK, "increments", False),
        (PAGERANK, "increments", True),
        (PAGERANK, "at_once", True),
    ],
    ids=lambda one: one["name"] if isinstance(one, dict) else None,
)
def test_what_runs_in_rounds_is_compared_by_its_results(
    world: World, document: Any, split: Any, queued: bool
):
    """However edges came: ranks as near as declared, rounds not at all, changes undecided."""
    verification = verified(
        linked(world, document, queued=queued), document["name"], Request(split)
    )
    # What has changed from round to round follows from no recomputation.
    expected = "equal" if document is CLUSTERING else "undecided"
    assert (verification.status, verification.error) == (expected, None), verification.tables
    kinds = {v.table: v.status for v in verification.tables}
    compared = {table for table, status in kinds.items() if status == "equal"}
    if document is CLUSTERING:
        assert compared == {"state/coefficients.graph", "flows/coefficients.co"}
        return
    states = {f"state/{name}" for name in STATES}
    assert compared == {*states, "state/verdict.last", "flows/rank.pages"}
    within = {v.table: v.within for v in verification.tables}
    assert within["flows/rank.pages"] == "within 0.05"
    assert within["state/rank.nodes"] == "within 0.05, ignoring shared, weight, round"
    because = {v.table: v.because for v in verification.tables}
    assert "the output follows the changes of a view" in because["flows/rank.moved"]


@pytest.mark.parametrize("split", ["increments", "at_once"])
@pytest.mark.parametrize("ready", [pagerank, clustering], ids=["pagerank", "clustering"])
def test_a_loop_of_one_run_is_compared_however_it_is_split(world: World, ready: Any, split: Any):
    """Links come and go: all tables of the ready dataflows are compared, and equal."""
    document = ready.document()
    world.controller.register(document)
    come = [(1, 2, None), (2, 3, None), (3, 1, None)]
    for edges in (come, [(1, 3, None), (2, 3, True)], [(3, 4, None), (4, 1, None)]):
        world.arrive(document["name"], "edges", *edges)
        world.clock.advance(1)
        world.ticks(20)
    verification = verified(world, document["name"], Request(split))
    assert (verification.status, verification.error) == ("equal", None), verification.tables
    assert len(verification.tables) == (4 if ready is pagerank else 3)


@pytest.mark.soak
def test_a_rank_that_is_wrong_is_found(world: World, monkeypatch: pytest.MonkeyPatch):
    """By more than is declared, page by page, in the table that has it."""
    linked(world, PAGERANK, queued=True)
    monkeypatch.setattr(sys.modules[__name__], "BIAS", 0.12)
    verification = verified(world, "pagerank")
    assert (verification.status, verification.suspect, verification.error) == (
        "differs",
        "rank",
        None,
    )
    wrong = {v.table: v.differing for v in verification.tables if v.status == "differs"}
    assert wrong.keys() == {"flows/rank.pages"}
    assert sorted(one.key for one in wrong["flows/rank.pages"]) == ["1", "2", "3", "4"]
