"""Distances along edges that come and go: breadth-first search from scratch is the oracle."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp import DataflowBuilder
from cbp.engine.direct import LocalEngine
from cbp.model.dataflow.dataflow import Dataflow
from cbp.testing import run_dataflow
from stages.translators.distances import Distances
from stages.translators.latest import Latest
from tests.driver import Driver
from tests.sampling import examples

EDGES = "src BIGINT, dst BIGINT, weight INT"
LIMIT = 4
Edge = tuple[int, int, int | None]
"""Two nodes, and a weight; without one, the edge goes."""

NODES = st.integers(0, 5)
DAYS = st.lists(
    st.lists(st.tuples(NODES, NODES, st.sampled_from([1, 2, None])), max_size=6), max_size=6
)


def distances(limit: int = LIMIT, *, source: int = 0) -> Dataflow:
    """Return the steps from one node along the edges that there are."""
    flow = DataflowBuilder("distances")
    latest = Latest(EDGES, "src, dst", gone="weight")
    edges = flow.stage("graph", latest, rows=flow.source("edges", EDGES))
    flow.stage("steps", Distances(source, limit), edges=edges.latest)
    return flow.build()


def search(days: Iterable[Sequence[Edge]], limit: int = LIMIT) -> dict[int, int]:
    """Return the same from scratch; node 0 alone, without an edge that leaves it, is not there."""
    last = {(src, dst): weight for day in days for src, dst, weight in day}
    graph = nx.DiGraph(edge for edge, weight in last.items() if weight is not None)
    if 0 not in graph or not graph.out_degree(0):
        return {}
    steps: dict[int, int] = nx.single_source_shortest_path_length(graph, 0, cutoff=limit)
    return dict(steps)


@settings(max_examples=examples(30), deadline=None)
@given(DAYS)
def test_after_every_increment_they_are_those_of_a_search(days: list[list[Edge]]) -> None:
    """Edges come, go, come again and change, also on cycles and while news are under way."""
    for end in range(1, len(days) + 1):
        result = run_dataflow(distances(), {"edges": days[:end]})
        assert dict(result.view("steps.distances")) == search(days[:end])
    again = run_dataflow(distances(), {"edges": days}, at_once=True)
    assert dict(again.view("steps.distances")) == search(days)


def test_what_a_removed_edge_held_is_gone_at_the_limit() -> None:
    """A cycle that was cut off holds itself up for so many epochs, and is silent then."""
    days: list[list[Edge]] = [
        [(0, 1, 1), (1, 2, 1), (2, 3, 1), (3, 1, 1), (0, 9, 1)],
        [(0, 1, None)],
    ]
    result = run_dataflow(distances(), {"edges": days})
    assert dict(result.view("steps.distances")) == {0: 0, 9: 1}
    assert result.state["steps.near"] == [(9, 0, 1)]
    epochs = result.outputs["steps.distances"]
    assert len(epochs) <= 2 * (LIMIT + 3)
    seen = [(row.node, row.distance) for epoch in epochs for row in epoch if row.sign > 0]
    assert {(1, 1), (1, 4), (2, 2), (3, 3)} <= {*seen}


def test_a_shorter_way_calls_only_what_lies_behind_it() -> None:
    """The edge's own node, and those that get nearer by it."""
    chain: list[Edge] = [(n, n + 1, 1) for n in range(30)]
    result = run_dataflow(distances(100), {"edges": [chain, [(0, 28, 1)]]})
    assert dict(result.view("steps.distances")) == search([chain, [(0, 28, 1)]], 100)
    called = [epoch["groups"] for epoch in result.figures["steps"]]
    assert called[-4:] == [1, 1, 1, 1]  # 0, 28, 29, 30


def test_on_tables_they_are_those_of_a_search(tmp_path: Path) -> None:
    """Random graphs that lose as many edges as they get, with several tasks."""
    dice = random.Random(3)
    engine = LocalEngine(cache=str(tmp_path / "cache"))
    driver = Driver(engine, distances(8), tmp_path / "t")
    days: list[list[Edge]] = []
    sizes = set()
    for _ in range(6):
        came = {(dice.randrange(25), dice.randrange(25)) for _ in range(12)}
        gone = dice.sample(sorted({edge[:2] for day in days for edge in day}), 8 if days else 0)
        days.append([(*edge, 1) for edge in sorted(came)] + [(*edge, None) for edge in gone])
        driver.feed(
            "edges", [dict(zip(("src", "dst", "weight"), e, strict=True)) for e in days[-1]]
        )
        driver.run_until_idle()
        actual = {row["node"]: row["distance"] for row in driver.state("steps", "distances")}
        assert actual == search(days, 8)
        sizes.add(len(actual))
    assert len(sizes) > 2


def test_a_source_that_is_no_node_reaches_nothing() -> None:
    """As in a search."""
    result = run_dataflow(distances(source=77), {"edges": [[(0, 1, 1)]]})
    assert result.view("steps.distances") == []


def test_a_limit_that_is_no_number_is_refused() -> None:
    """At registration."""
    with pytest.raises(TypeError):
        Distances(0, "few")  # type: ignore[arg-type]
