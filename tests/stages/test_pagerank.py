"""Incremental PageRank: against a computation from scratch, and against networkx.

`from_scratch` is the formula of the stage's header, iterated over the whole graph. With
`-m soak` the graph has 7,000 pages, as the paper's check had, and 100,000 on tables:
`pytest -m soak tests/stages/test_pagerank.py -k 100000`.

Ranks are those from scratch, 7,000 pages each within 1e-9, 100,000 on tables within 1e-9 of the sum
of all; and networkx's within 1e-8 in L1. `members` is who is affected, at any time.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from networkx.algorithms.link_analysis.pagerank_alg import _pagerank_python

from cbp.engine.direct import LocalEngine
from cbp.engine.reference.engine import ReferenceEngine
from cbp.errors import DefinitionError
from cbp.testing import Result, run_dataflow, run_epochs
from stages.flows.pagerank_in_phases import pagerank_in_phases as pagerank
from stages.translators.incremental_pagerank import IncrementalPageRank
from stages.translators.pagerank_verdict import PageRankVerdict
from tests.driver import Driver
from tests.stages.documents import same_graph
from tests.stages.reference_pagerank import A, Edge, from_scratch, links_of

EXAMPLES = int(os.environ.get("CBP_RANKS", "4"))


def networkx_distance(ranks: Mapping[int, float], edges: list[Edge]) -> float:
    """Return the L1 distance from networkx's PageRank, whose sum is 1."""
    theirs = _pagerank_python(nx.DiGraph(edges), alpha=A, max_iter=1000, tol=1e-14)
    return float(sum(abs(ranks[node] / len(ranks) - rank) for node, rank in theirs.items()))


def random_edges(pages: int, links: int, seed: int, *, dangling: float = 0.1) -> list[Edge]:
    """Return the links of a web: some pages get many, some have none."""
    chance = random.Random(seed)
    sources = range(int(pages * dangling), pages)
    edges = {
        (chance.choice(sources), int(pages * chance.random() ** 2)) for _ in range(pages * links)
    }
    mixed = sorted(edges)
    chance.shuffle(mixed)
    return mixed


def ranked(*increments: list[Edge], **options: Any) -> Result:
    return run_dataflow(pagerank(**options), {"edges": increments})


def ranks_of(result: Result) -> dict[int, float]:
    return result.last("rank.pages")


def latest(engine: ReferenceEngine) -> dict[int, float]:
    """Return the last rank of every page."""
    rows = [row for epoch in engine.outputs("rank.pages") for row in epoch]
    return {row["node"]: row["rank"] for row in rows}


def rounds_of(result: Result) -> list[int]:
    """Return how many pages each round computed."""
    return [len(epoch) for epoch in result.outputs["rank.pages"] if epoch]


def test_two_pages_and_a_third() -> None:
    """Each round emits the pages that changed; a dangling page gives to all alike."""
    result = ranked([(1, 2), (2, 1)], [(1, 3)], threshold=0.0)
    first, second = (dict(epoch) for epoch in result.outputs["rank.pages"] if epoch)
    assert first == pytest.approx({1: 1.0, 2: 1.0})
    assert second == pytest.approx(from_scratch([(1, 2), (2, 1), (1, 3)]))
    assert [row.round for epoch in result.outputs["verdict.converged"] for row in epoch] == [1, 2]


PAGES = st.integers(0, 11)
LINKS = st.lists(st.tuples(PAGES, PAGES), min_size=10, max_size=24)
"""In any order, some of them twice, to themselves, and to pages that link to nobody."""
CUTS = st.lists(st.tuples(st.integers(0, 24), st.integers(0, 60)), min_size=2, max_size=3)
"""Where increments end, and the steps that the dataflow makes before the next one comes."""


@settings(max_examples=EXAMPLES, deadline=None)
@example(edges=[(0, 1), (0, 2), (1, 0), (2, 2), (0, 1), (3, 4)], cuts=[(2, 3), (4, 4), (6, 50)])
@given(edges=LINKS, cuts=CUTS)
def test_any_split_gives_the_ranks_from_scratch(
    edges: list[Edge], cuts: list[tuple[int, int]]
) -> None:
    """At threshold 0, of any web: known links again, links to itself, pages without any.

    Also when links arrive in any phase of a round that is under way. `CBP_RANKS=200` tries more.
    """
    engine, begin = ReferenceEngine(pagerank(threshold=0.0)), 0
    for end, steps in (*sorted(cuts), (len(edges), 0)):
        engine.feed("edges", edges[begin:end])
        begin = max(begin, min(end, len(edges)))
        for _ in range(steps):
            engine.step()
    engine.run_until_idle()
    assert latest(engine) == pytest.approx(from_scratch(edges), rel=0, abs=1e-9)


@pytest.mark.soak
def test_ranks_are_those_of_networkx_however_pages_are_told() -> None:
    """By multicast or by broadcast: equal to each other, to scratch, and to networkx in L1."""
    edges = random_edges(20, 2, seed=1)
    increments = [edges[:-4], edges[-4:]]
    multicast, broadcast = (
        ranked(*increments, threshold=0.0, tolerance=1e-8, broadcast=told) for told in (False, True)
    )
    assert ranks_of(multicast) == ranks_of(broadcast)
    assert ranks_of(multicast) == pytest.approx(from_scratch(edges), rel=0, abs=1e-7)
    assert networkx_distance(ranks_of(multicast), edges) < 1e-8
    assert not any(epoch["dead_letters"] for epoch in multicast.figures["rank"])


def test_a_threshold_computes_fewer_pages_near_the_truth() -> None:
    """The smaller the threshold, the more pages and the better; L1 is below threshold / (1-a)."""
    # A ring with some chords: a change fades with the distance.
    edges = [(n, (n + step) % 30) for n in range(30) for step in (1, 2 + n % 5)]
    actual = {}
    for threshold in (0.0, 0.05, 0.2):
        result = ranked(edges, [(0, 15)], threshold=threshold, tolerance=1e-6)
        distance = networkx_distance(ranks_of(result), [*edges, (0, 15)])
        actual[threshold] = rounds_of(result)[1], distance
    pages, distances = zip(*actual.values(), strict=True)
    assert pages[0] == 30 > pages[1] > pages[2] > 0
    assert distances[0] < 1e-7 < distances[1] < 0.04 < distances[2] < 0.06
    assert all(
        distance <= threshold / (1 - A) + 1e-7 for threshold, (_, distance) in actual.items()
    )


def test_pages_that_nothing_reaches_keep_their_ranks() -> None:
    """Two webs without dangling pages: a link in one computes nothing in the other."""
    left = [(1, 2), (2, 3), (3, 1)]
    right = [(a + 10, b + 10) for a, b in left]
    result = ranked(left + right, [(1, 3)], threshold=0.0)
    *_, last = (dict(epoch) for epoch in result.outputs["rank.pages"] if epoch)
    assert set(last) == {1, 2, 3}
    assert ranks_of(result) == pytest.approx(from_scratch([*left, *right, (1, 3)]), abs=1e-9)


@pytest.mark.parametrize("broadcast", [False, True])
def test_the_end_of_a_round_calls_who_was_in_it(broadcast: bool) -> None:
    """The verdict reaches G and no other page; by broadcast, every page."""
    left = [(1, 2), (2, 3), (3, 1)]
    right = [(a + 10, b + 10) for a, b in left * 3]
    engine = ReferenceEngine(pagerank(threshold=0.0, tolerance=1e-3, broadcast=broadcast))
    for increment in (left + right, [(1, 3)]):
        engine.feed("edges", increment)
        called = ends_of_rounds(engine)
    assert called == ([6] if broadcast else [3])


def ends_of_rounds(engine: ReferenceEngine) -> list[int]:
    """Run until idle; return how many groups each verdict reached. Members are G at any time."""
    called, before = [], len(engine.figures("rank"))
    while engine.step():
        nodes, members = engine.state("rank", "nodes"), engine.state("rank", "members")
        affected = [row["node"] for row in nodes if row["affected"]]
        assert [row["node"] for row in members] == affected
    pages = engine.outputs("rank.pages")
    for epoch in range(before, len(pages)):
        if pages[epoch]:
            called.append(engine.figures("rank")[epoch]["groups"])
    return called


def test_a_link_that_is_known_starts_no_round() -> None:
    """Repeated edges read as input, and nothing follows."""
    result = ranked([(1, 2), (2, 1)], [(1, 2)])
    assert rounds_of(result) == [2]


def test_between_rounds_the_inflow_is_what_others_give() -> None:
    """The invariant that lets a round begin without asking who links to a page."""
    edges = random_edges(12, 2, seed=3, dangling=0.3)
    increments = (edges[:10], edges[10:15], edges[15:])
    result = ranked(*increments, threshold=0.001, tolerance=1e-6)
    links = links_of(edges)
    nodes = {row.node: row for row in result.state["rank.nodes"]}
    inflow: dict[int, float] = dict.fromkeys(links, 0.0)
    for node, targets in links.items():
        for target in targets:
            inflow[target] += nodes[node].rank / len(targets)
    assert {n: row.inflow for n, row in nodes.items()} == pytest.approx(inflow, abs=1e-12)
    (whole,) = result.state["rank.whole"]
    dangling = sum(nodes[node].rank for node, targets in links.items() if not targets)
    assert (whole.n, whole.dangling) == (len(links), pytest.approx(dangling, abs=1e-12))
    assert not any(row.affected for row in nodes.values())


def test_the_verdict_comes_once_per_round() -> None:
    """What was computed beyond the verdict is not judged again."""
    moved = [[(1, 0.5), (1, 0.5)], [(1, 0.01), (1, 0.05)], [(1, 0.0)], [(2, 0.2)], [(2, 0.1)]]
    result = run_epochs(PageRankVerdict(tolerance=0.1), moved)
    assert result.outputs["converged"] == [[], [(1,)], [], [], [(2,)]]


@pytest.mark.parametrize("options", [{"damping": 1.0}, {"damping": 0.0}, {"threshold": -1.0}])
def test_parameters_out_of_range_are_refused(options: dict[str, Any]) -> None:
    """Ranks would not converge, or every weight would travel for ever."""
    with pytest.raises(DefinitionError, match=next(iter(options))):
        IncrementalPageRank(**options)


def test_the_document_and_the_code_build_the_same_graph() -> None:
    """Whichever way it is registered."""
    same_graph("pagerank_in_phases", pagerank())


def told_twice(driver: Any, edges: list[Edge], added: int) -> None:
    """Let a dataflow read a whole graph but for its last links, and then these."""
    for increment in (edges[:-added], edges[-added:]):
        driver.feed("edges", [{"src": src, "dst": dst} for src, dst in increment])
        driver.run_until_idle()


def assert_ranked(ranks: Mapping[int, float], edges: list[Edge], *, within: float = 1e-9) -> None:
    """Compare with from scratch, page by page (the mean rank is 1); and with networkx in L1."""
    scratch = from_scratch(edges)
    assert ranks.keys() == scratch.keys()
    assert max(abs(ranks[node] - rank) for node, rank in scratch.items()) < within
    assert networkx_distance(ranks, edges) < 1e-8


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_the_ranks_of_7000_pages() -> None:
    """As the paper's check: the whole graph, then some new links, against from scratch."""
    edges = random_edges(7_000, 3, seed=7)
    engine = ReferenceEngine(pagerank(threshold=0.0, tolerance=1e-10))
    told_twice(engine, edges, 20)
    assert_ranked(latest(engine), edges)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_the_ranks_of_100000_pages(tmp_path: Path) -> None:
    """On the direct engine, with state and messages on disk; every page moves, twice.

    It goes on until all ranks together move by less than 1e-10 of their sum.
    """
    ranks_on_tables(100_000, 100, tmp_path)


def ranks_on_tables(pages: int, added: int, folder: Path) -> None:
    """Let the direct engine rank a graph, and then some new links; compare both ways."""
    edges = random_edges(pages, 3, seed=8)
    dataflow = pagerank(threshold=0.0, tolerance=1e-10 * pages)
    driver = Driver(LocalEngine(cache=str(folder / "cache")), dataflow, folder / "t")
    told_twice(driver, edges, added)
    node = dataflow.stages["rank"]
    rows = driver.engine.records.read_state(driver.folder, node, "nodes")
    ranks = {row["node"]: row["rank"] for row in rows}
    assert_ranked(ranks, edges, within=1e-9 * pages)
