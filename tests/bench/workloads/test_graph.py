"""Graphs come from the seed alone, have the web's shape, and ranks are networkx's."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from networkx.algorithms.link_analysis.pagerank_alg import _pagerank_python

from tests.bench.workloads.graph import Edges, Graph, edge_table, ranks_of

WAYS = [False, True]


def codes(edges: Edges, nodes: int, *, undirected: bool = False) -> list[tuple[int, int]]:
    """Return links as pairs; of undirected ones the smaller end first."""
    pairs = edge_table(edges).to_pylist()
    actual = [(pair["src"], pair["dst"]) for pair in pairs]
    return [(min(p), max(p)) for p in actual] if undirected else actual


@pytest.mark.parametrize("undirected", WAYS)
@pytest.mark.parametrize("seed", [0, 7])
def test_links_are_distinct_and_no_loops(undirected: bool, seed: int) -> None:
    """As many as were asked for, between pages that there are; every page has one."""
    graph = Graph(300, 2_000, seed, undirected=undirected)
    links = codes(graph.first, 300, undirected=undirected)
    assert len(links) == len(set(links)) == 2_000
    assert all(a != b for a, b in links)
    assert {page for link in links for page in link} == set(range(300))


@pytest.mark.parametrize("undirected", WAYS)
def test_an_increment_brings_links_that_are_new(undirected: bool) -> None:
    """They follow from seed and number alone; another seed or number gives others."""
    graph = Graph(200, 1_500, 3, undirected=undirected)
    first = set(codes(graph.first, 200, undirected=undirected))
    more = codes(graph.more(5, 40), 200, undirected=undirected)
    assert len(set(more)) == 40
    assert not set(more) & first
    again = Graph(200, 1_500, 3, undirected=undirected)
    assert codes(again.more(5, 40), 200, undirected=undirected) == more
    others = (graph.more(6, 40), Graph(200, 1_500, 4, undirected=undirected).more(5, 40))
    assert all(codes(edges, 200, undirected=undirected) != more for edges in others)


def test_few_pages_have_many_links() -> None:
    """In-degrees fall off as a power: the tail above d is near d^-1.5, as the web's is."""
    graph = Graph(50_000, 500_000)
    into = np.bincount(graph.first.dst, minlength=50_000)
    tail = {d: int((into >= d).sum()) for d in (50, 500)}
    slope = np.log10(tail[50] / tail[500])
    assert 1.3 < slope < 1.7
    assert into.max() > 1000 > 30 > np.median(into)
    dangling = np.bincount(graph.first.src, minlength=50_000) == 0
    assert dangling.sum() == 2_500
    assert len(graph.first.src) == len(graph.first.dst) == 500_000


def test_ranks_from_scratch_are_those_of_networkx() -> None:
    """Dangling pages give to all; rank, inflow and the dangling sum belong together."""
    graph = Graph(400, 2_500, 1)
    actual = ranks_of(graph.first, 400)
    network = nx.DiGraph(codes(graph.first, 400))
    theirs = _pagerank_python(network, alpha=0.85, max_iter=1000, tol=1e-15)
    assert sum(abs(actual.rank[n] / 400 - rank) for n, rank in theirs.items()) < 1e-10
    given = 0.15 + 0.85 * (actual.inflow + actual.dangling / 400)
    assert np.abs(given - actual.rank).max() < 1e-11
    dangles = np.bincount(graph.first.src, minlength=400) == 0
    assert actual.dangling == pytest.approx(actual.rank[dangles].sum(), abs=1e-12)
