"""Clustering coefficients: networkx is the oracle, for both forms and any split."""

from __future__ import annotations

import random
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp.testing import check_split, run_dataflow, run_epochs
from stages.flows.clustering_by_messages import clustering_by_messages as clustering
from stages.translators import clustering_coefficients
from stages.translators.clustering_coefficients import ClusteringCoefficients
from tests.stages.documents import same_graph

FORMS = [False, True]
NODES = st.integers(0, 6)
SPLITS = st.lists(st.lists(st.tuples(NODES, NODES), max_size=6), max_size=5)

Edge = tuple[int, int]


def coefficients(edges: list[Edge]) -> dict[int, float]:
    """Return networkx's answer."""
    graph = nx.Graph([(a, b) for a, b in edges if a != b])
    answer: dict[int, float] = nx.clustering(graph)
    return answer


def random_edges(nodes: int, neighbours: int, seed: int) -> list[Edge]:
    """Return the edges of a small world, in any order and direction."""
    graph = nx.watts_strogatz_graph(nodes, neighbours, 0.2, seed=seed)
    edges = [edge if (sum(edge) + seed) % 2 else edge[::-1] for edge in graph.edges]
    random.Random(seed).shuffle(edges)
    return edges


@pytest.mark.parametrize("multicast", FORMS)
def test_a_triangle_over_two_epochs(multicast: bool) -> None:
    """An edge takes two epochs; the third edge closes the triangle for everybody."""
    result = run_epochs(ClusteringCoefficients(multicast), [[(1, 2), (2, 3)], [(3, 1)]])
    assert [sorted(epoch) for epoch in result.outputs["co"]] == [
        [],
        [(1, 0.0), (2, 0.0), (3, 0.0)],
        [],
        [(1, 1.0), (2, 1.0), (3, 1.0)],
    ]
    assert result.state["graph"][0] == (1, 2, [1, 3])


@pytest.mark.part(every=2)
@pytest.mark.parametrize("multicast", FORMS)
@given(SPLITS)
def test_any_split_gives_the_coefficients_of_networkx(
    multicast: bool, epochs: list[list[Edge]]
) -> None:
    """Also self-loops, repeated edges, and edges that arrive while messages are under way."""
    batch = check_split(ClusteringCoefficients(multicast), epochs)
    assert batch.last("co") == pytest.approx(coefficients([e for each in epochs for e in each]))


@pytest.mark.part(every=4)
@pytest.mark.parametrize("increments", [2, 1, 5, 20])
def test_both_forms_agree_with_networkx_on_a_random_graph(increments: int) -> None:
    """On 598 nodes, however many increments the edges come in."""
    edges = random_edges(598, 6, seed=increments)
    arrivals = {"edges": [edges[i::increments] for i in range(increments)]}
    plain, multicast = (run_dataflow(clustering(multicast=form), arrivals) for form in FORMS)
    assert plain.last("coefficients.co") == pytest.approx(coefficients(edges))
    assert plain.last("coefficients.co") == multicast.last("coefficients.co")
    assert plain.state == multicast.state


@pytest.mark.soak
def test_figure_7_as_printed_is_wrong_from_two_increments_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without telling new neighbours of the old ones; one increment does not show it."""

    def as_printed(out: Any, node: int, old: list[int], new: list[int]) -> None:
        for added in new:
            for target in (*old, *new):
                out.fof(target=target, src=node, dst=added)

    monkeypatch.setattr(clustering_coefficients, "_send_to_each", as_printed)
    edges = random_edges(598, 6, seed=1)
    expected = coefficients(edges)
    for increments, least in [(1, 0), (2, 100), (20, 200)]:
        arrivals = [edges[i::increments] for i in range(increments)]
        got = run_epochs(ClusteringCoefficients(), arrivals).last("co")
        wrong = sum(got[node] != pytest.approx(co) for node, co in expected.items())
        assert (wrong > least) == (least > 0), f"{wrong} wrong in {increments} increments"


def test_multicast_sends_one_record_per_new_edge() -> None:
    """A hub of 50 that gets a neighbour emits it once; the plain form emits each."""
    star = [[(0, node) for node in range(1, 51)], [(0, 51)]]
    sent = {}
    for multicast in FORMS:
        result = run_epochs(ClusteringCoefficients(multicast), star)
        sent[multicast] = [row for row in result.outputs["fof"][2] if row.src == 0]
        assert all(epoch["dead_letters"] == 0 for epoch in result.figures["stage"])
    # The news is one record; the 50 old neighbours are sent to the new one in either form.
    assert [len(sent[multicast]) for multicast in FORMS] == [51 + 50, 1 + 50]


def test_an_edge_without_an_end_is_refused() -> None:
    """A record that the schema does not allow does not enter the graph."""
    with pytest.raises(TypeError, match="'dst' is declared BIGINT NOT NULL"):
        run_epochs(ClusteringCoefficients, [[(1, None)]])


def test_the_document_and_the_code_build_the_same_graph() -> None:
    """Whichever way it is registered."""
    same_graph("clustering_by_messages", clustering())
