"""The state that a graph's benchmark begins with is the one that its dataflow comes to.

Values are compared with networkx's.
"""

from __future__ import annotations

from typing import Any

import networkx as nx
import pytest
from networkx.algorithms.link_analysis.pagerank_alg import _pagerank_python

from cbp.engine.reference.engine import ReferenceEngine
from tests.bench.comparison.result_comparison import Values
from tests.bench.workloads import graph_workloads
from tests.bench.workloads.graph import edge_table
from tests.bench.workloads.graph_workloads import Clustering, GraphWorkload, PageRank
from tests.bench.workloads.workload import variant_of


def fed(workload: GraphWorkload) -> ReferenceEngine:
    """Let the reference engine read the first links of a workload."""
    dataflow = workload.dataflow(grouping="inner", form="groupwise", buckets=4)
    engine = ReferenceEngine(dataflow)
    engine.feed("edges", edge_table(workload.graph.first).to_pylist())
    engine.run_until_idle()
    return engine


def by_key(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return records in the order of their first columns, whatever they are."""
    return sorted(rows, key=lambda row: [repr(value) for value in row.values()][:2])


def test_loaded_neighbours_are_those_that_epochs_find() -> None:
    """Record by record."""
    workload = Clustering(120, 400, 2)
    (records,) = workload.states().values()
    actual = fed(workload).state("coefficients", "graph")
    assert by_key(records.to_pylist()) == by_key(actual)
    assert records.num_rows == workload.state_records


@pytest.mark.soak
def test_loaded_pages_are_those_of_a_round_over_the_whole_graph() -> None:
    """Every state, column by column: keys exactly, numbers up to the tolerance.

    But for what the whole holds back below the threshold: in the first round, which everybody
    joins by itself, nothing of it is ever due.
    """
    workload = PageRank(100, 400, 2, threshold=0.0)
    engine = fed(workload)
    states = workload.states()
    for (stage, state), records in states.items():
        held_back = {"weight"} if state == "whole" else set()
        mine, theirs = by_key(records.to_pylist()), by_key(engine.state(stage, state))
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs, strict=True):
            lists = {name for name, value in other.items() if isinstance(value, list)}
            assert {n: one[n] for n in lists} == {n: other[n] for n in lists}
            numbers = {n: other[n] for n in other.keys() - lists - held_back}
            assert {n: one[n] for n in numbers} == pytest.approx(numbers, abs=1e-5)
    assert sum(records.num_rows for records in states.values()) == workload.state_records


@pytest.mark.parametrize("variant", ["", "plain"])
def test_coefficients_of_the_state_are_networkx_s(variant: str) -> None:
    """What candidates are compared by is the answer, in either variant."""
    workload = variant_of(Clustering(120, 500, 5), variant)
    assert isinstance(workload, Clustering)
    engine = fed(workload)
    edges = edge_table(workload.graph.first).to_pylist()
    expected = nx.clustering(nx.Graph([(edge["src"], edge["dst"]) for edge in edges]))
    assert workload.held(engine.state).of == pytest.approx(expected)


@pytest.mark.soak
@pytest.mark.parametrize("variant", ["", "broadcast"])
def test_ranks_of_the_state_are_networkx_s(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At threshold 0, in either variant, up to the tolerance; the mean rank is 1."""
    monkeypatch.setattr(graph_workloads, "TOLERANCE", 1e-5)
    workload = variant_of(PageRank(60, 240, 5, threshold=0.0), variant)
    assert isinstance(workload, PageRank)
    edges = edge_table(workload.graph.first).to_pylist()
    network = nx.DiGraph([(edge["src"], edge["dst"]) for edge in edges])
    ranks = _pagerank_python(network, alpha=0.85, max_iter=1000, tol=1e-15)
    expected = Values({page: rank * 60 for page, rank in ranks.items()})
    assert workload.held(fed(workload).state).of == pytest.approx(expected.of, abs=1e-3)


def test_a_variant_is_the_same_graph_told_in_another_way() -> None:
    """Only the route of the messages differs."""
    for workload, variant in ((Clustering(100, 300), "plain"), (PageRank(100, 300), "broadcast")):
        other = variant_of(workload, variant)
        assert other.records(3, 10, before=0).equals(workload.records(3, 10, before=0))
        ours, theirs = (
            each.dataflow(grouping="outer", form="groupwise", buckets=8)
            for each in (workload, other)
        )
        assert ours.stages.keys() == theirs.stages.keys()
        routes = [
            [i.route_by for i in node.translator.loopbacks]
            for flow in (ours, theirs)
            for node in flow.stages.values()
        ]
        assert routes[: len(routes) // 2] != routes[len(routes) // 2 :]
        states = [s for n in ours.stages.values() for s in n.translator.states]
        assert {state.grouping for state in states} == {"outer"}
