"""Loops on arrays over graphs that were not made for them: exact after every increment.

Half of the edges, a tenth, then few are added, and removed again. Answers from scratch are NumPy's
(`tests.stages.real_graphs`). By default some thousand edges of each graph; with `-m soak` all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networkx.algorithms.link_analysis.pagerank_alg import _pagerank_python

from cbp import DataflowBuilder
from cbp.engine.direct import LocalEngine
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.plan.explain import PhysicalLimits, explain
from cbp.model.run.account import ways
from cbp.testing import check_split, run_dataflow
from stages.translators.clustering_arrow import ClusteringArrow
from stages.translators.components_arrow import ComponentsArrow
from stages.translators.core_numbers_arrow import CoreNumbersArrow
from stages.translators.label_propagation_arrow import LabelPropagationArrow
from stages.translators.latest import Latest
from stages.translators.pagerank_arrow import PageRankArrow
from stages.translators.reachable_arrow import ReachableArrow
from stages.translators.strong_components_arrow import StrongComponentsArrow
from tests.cbp.engine.epochs import assert_same
from tests.driver import Driver
from tests.sampling import examples
from tests.stages.real_graphs import (
    Edges,
    debian,
    imports,
    labels,
    power_law,
    scores,
    steps,
    triangles,
)

SCHEMA = "src BIGINT NOT NULL, dst BIGINT NOT NULL, gone BOOLEAN"
SOURCE, ERROR = 1, 1e-9
Values = dict[int, float]


def loop_of(stage: Any, buckets: int = 2) -> Dataflow:
    """Return a stage behind a source of edges that come, or are gone."""
    flow = DataflowBuilder("loop")
    flow.stage("loop", stage, buckets=buckets, edges=flow.source("edges", SCHEMA))
    return flow.build()


def values(pair: tuple[Any, Any]) -> Values:
    nodes, many = pair
    return dict(zip(nodes.tolist(), many.tolist(), strict=True))


def coefficients(edges: Edges) -> Values:
    """Return what follows from triangles and degrees."""
    edges = edges[edges[:, 0] != edges[:, 1]]
    if not len(edges):
        return {}
    nodes, corners = triangles(edges)
    degree = np.bincount(np.searchsorted(nodes, np.unique(np.sort(edges, axis=1), axis=0).ravel()))
    return values((nodes, 2 * corners / np.maximum(degree * (degree - 1), 1)))


def undirected(edges: Edges) -> nx.Graph:
    graph = nx.Graph(edges.tolist())
    graph.remove_edges_from([*nx.selfloop_edges(graph)])
    graph.remove_nodes_from([*nx.isolates(graph)])
    return graph


def strong_labels(edges: Edges) -> Values:
    parts = nx.strongly_connected_components(nx.DiGraph(edges.tolist()))
    return {node: min(part) for part in parts for node in part}


def propagated_labels(edges: Edges, rounds: int = 5) -> Values:
    """Let nodes take what most neighbours and they themselves have, of several the least."""
    graph = undirected(edges)
    label = {node: node for node in graph}
    for _ in range(rounds):
        told = {node: Counter([label[node], *map(label.get, graph[node])]) for node in graph}
        label = {node: min(many, key=lambda one: (-many[one], one)) for node, many in told.items()}
    return label


Make = Callable[[bool], Any]
"""Makes a stage; its edges are the changes of a view, or not."""

LOOPS: dict[str, tuple[Make, str, Callable[[Edges], Values]]] = {
    "components": (
        lambda changes: ComponentsArrow(changes=changes),
        "nodes",
        lambda edges: values(labels(edges)),
    ),
    "reachable": (
        lambda changes: ReachableArrow(SOURCE, changes=changes),
        "nodes",
        lambda edges: values(steps(edges, SOURCE)),
    ),
    "pagerank": (
        lambda changes: PageRankArrow(error=ERROR, changes=changes),
        "ranks",
        lambda edges: values(scores(edges)),
    ),
    "clustering": (lambda changes: ClusteringArrow(changes=changes), "nodes", coefficients),
    "strong-components": (
        lambda changes: StrongComponentsArrow(changes=changes),
        "nodes",
        strong_labels,
    ),
    "core-numbers": (
        lambda changes: CoreNumbersArrow(changes=changes),
        "nodes",
        lambda edges: dict(nx.core_number(undirected(edges))),
    ),
    "label-propagation": (
        lambda changes: LabelPropagationArrow(changes=changes),
        "nodes",
        propagated_labels,
    ),
}
GRAPHS: dict[str, Callable[[], Edges]] = {
    "debian": debian,
    "imports": imports,
    "power-law": lambda: power_law(20_000, 60_000),
}
FEW = 6_000


@pytest.mark.parametrize("name", ["components", "pagerank", "clustering"])
def test_a_node_with_a_tenth_of_all_edges_stalls_nothing(name: str, tmp_path: Path) -> None:
    """Exact while edges of the hub come and go, in runs that read it by key or with all others."""
    make, view, scratch = LOOPS[name]
    dice = np.random.default_rng(3)
    edges = power_law(4_000, 9_000)
    spokes = np.stack([np.full(1_000, 4_001), dice.permutation(4_000)[:1_000]], axis=1)
    edges = np.concatenate([edges, spokes])[dice.permutation(len(edges) + len(spokes))]
    driver = Driver(
        LocalEngine(cache=str(tmp_path / "cache")), loop_of(make(False)), tmp_path / "tables"
    )
    hub = edges[edges[:, 0] == 4_001]
    there = edges[:0]
    for some, gone in ((edges, False), (hub[:40], True), (hub[:9], False), (hub[9:], True)):
        rows = [{"src": src, "dst": dst, "gone": gone} for src, dst in some.tolist()]
        driver.feed("edges", rows)
        driver.run_until_idle()
        kept = {*map(tuple, there.tolist())} - {*map(tuple, some.tolist())}
        there = np.array(sorted(kept | ({*map(tuple, some.tolist())} if not gone else set())))
        actual = dict(tuple(row.values())[:2] for row in driver.state("loop", view))
        right = scratch(there)
        assert actual.keys() == right.keys()
        wrong = sum(abs(actual[node] - right[node]) for node in right)
        assert wrong <= 2 * ERROR * len(right)


def test_a_run_says_which_way_it_went(tmp_path: Path) -> None:
    """All links at once and anew where many came, else by key; the figures say how much was read.

    The plan says from which size on.
    """
    dataflow = loop_of(ComponentsArrow(changes=False))
    driver = Driver(LocalEngine(cache=str(tmp_path / "cache")), dataflow, tmp_path / "tables")
    for count in (9_000, 1):
        edges = [{"src": at, "dst": at + count} for at in range(count)]
        driver.feed("edges", edges)
        driver.run_until_idle()
    first, second = (ways(figures) for figures in driver.figures)
    assert first == ["anew"]
    way, held, links = second
    assert way == "by what changed"
    assert held == "read 3 records of held by 3 keys"  # both ends, and what hangs below one
    assert re.fullmatch(r"read \d records of links by \d keys", links)
    (unit,) = explain(dataflow, ("loop",), PhysicalLimits(1)).units
    assert "if at least a 16th as many edges arrived" in unit.stages[0].ways


def test_scores_are_as_exact_whether_they_are_swept_or_pushed(tmp_path: Path) -> None:
    """Links of a path cost its end; those of the graph beside it reach most of it, in few runs.

    What sweeps leave and what pushes leave is within the error together, however they alternate.
    """
    graph = power_law(2_000, 12_000)
    path = np.stack([np.arange(400), np.arange(1, 401)], axis=1) + 10_000
    folder, error = tmp_path / "tables", 1e-9
    driver = Driver(
        LocalEngine(cache=str(tmp_path / "cache")),
        loop_of(PageRankArrow(error=error, changes=False)),
        folder,
    )
    there, went = np.concatenate([graph[60:], path]), list[str]()
    days = [(there, False)]
    for at in range(0, 60, 20):
        days += [(graph[at : at + 20], False), (path[380 - at : 382 - at], True)]
        days += [(graph[1_000 + at : 1_020 + at], True)]
    for number, (some, gone) in enumerate(days):
        driver.feed("edges", fed(some, gone=gone))
        driver.run_until_idle()
        if number:
            there = np.concatenate([there, some])
        if gone:
            there = there[~(there[:, None] == some).all(axis=2).any(axis=1)]
        actual = {row["node"]: row["score"] for row in driver.state("loop", "ranks")}
        right = values(scores(there))
        assert actual.keys() == right.keys()
        assert sum(abs(actual[node] - right[node]) for node in right) <= error * len(right)
        went += ways(driver.figures[-1])[:1]
        if went[-1] == "by what changed":
            assert driver.figures[-1]["state_written"] < 200
    assert all(figures["recalled"] for figures in driver.figures[1:])
    swept = "over all links"
    assert went == [swept, *[swept, "by what changed", swept] * 3]


def history(edges: Edges) -> Iterator[tuple[Edges, bool, Edges]]:
    """Yield increments: the edges, whether they are gone, and all that are there afterwards."""
    sizes = [len(edges) // 2, len(edges) // 10, 1_000, 100, 10, 1]
    at = 0
    for size in sizes:
        yield edges[at : at + size], False, edges[: at + size]
        at += size
    for size in (1, 10, 100, 1_000, at // 10):
        first = (at * 7919) % max(1, at - size)
        gone, rest = (
            edges[first : first + size],
            np.delete(edges[:at], slice(first, first + size), 0),
        )
        edges, at = rest, len(rest)
        yield gone, True, rest


def fed(edges: Edges, *, gone: bool) -> list[dict[str, Any]]:
    return [{"src": src, "dst": dst, "gone": gone or None} for src, dst in edges.tolist()]


@pytest.mark.part(every=10)
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    "most",
    [FEW, pytest.param(None, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])],
    ids=["some", "all"],
)
def test_after_every_increment_it_is_what_scratch_gives(
    loop: str, graph: str, most: int | None, tmp_path: Path
) -> None:
    """Whole graphs at once and single edges, added and removed; each increment is one epoch."""
    make, view, oracle = LOOPS[loop]
    driver = Driver(
        LocalEngine(cache=str(tmp_path / "cache")), loop_of(make(False)), tmp_path / "t"
    )
    for number, (some, gone, there) in enumerate(history(GRAPHS[graph]()[:most])):
        driver.feed("edges", fed(some, gone=gone))
        driver.run_until_idle()
        assert len(driver.figures) == number + 1
        named = driver.dataflow.stages["loop"].translator.state(view).schema.names[:2]
        actual = {row[named[0]]: row[named[1]] for row in driver.state("loop", view)}
        right = oracle(there)
        assert actual.keys() == right.keys()
        wrong = sum(abs(actual[node] - right[node]) for node in right)
        assert wrong <= ERROR * len(right), f"increment {number} of {len(some)} edges"


@pytest.mark.part(every=3)
@pytest.mark.parametrize("loop", LOOPS)
def test_every_epoch_equals_the_reference(loop: str, tmp_path: Path) -> None:
    """States, changes of views and their order, where a run reads all and where it looks up.

    Sweeps add doubles in the order in which nodes were read, which differs between the engines,
    and with routines that depend on the processor. So scores may differ by some units of 2**-44.
    """
    make, _, _ = LOOPS[loop]
    edges = power_law(1_500, 4_000, seed=3)
    days = [(edges[:3_000], False), (edges[3_000:3_040], False), (edges[::150], True)]
    days += [(edges[:1], True), (edges[:2], False)]
    dataflow = loop_of(make(False), buckets=8)
    driver = Driver(LocalEngine(cache=str(tmp_path / "cache")), dataflow, tmp_path / "t")
    epochs = [{"edges": fed(some, gone=gone)} for some, gone in days]
    within = {"score": 2.0**-40, "residual": 16} if loop == "pagerank" else {}
    assert_same(dataflow, driver, epochs, source="", within=within)


@pytest.mark.parametrize("stage", [ComponentsArrow, ClusteringArrow])
def test_an_edge_costs_what_lies_around_it(stage: type[Any], tmp_path: Path) -> None:
    """It is added to a graph of which a run would have to read megabytes, and removed again."""
    edges = power_law(20_000, 60_000)
    driver = Driver(
        LocalEngine(cache=str(tmp_path / "cache")), loop_of(stage(changes=False)), tmp_path / "t"
    )
    for some, gone in ((edges[2:], False), (edges[:1], False), (edges[:1], True)):
        driver.feed("edges", fed(some, gone=gone))
        driver.run_until_idle()
    assert all(0 < figures["bytes_read"] < 100_000 for figures in driver.figures[1:])
    assert all(figures["state_written"] < 20 for figures in driver.figures[1:])


NODES = st.integers(0, 7)
Told = tuple[int, int, bool | None]
DAYS = st.lists(
    st.lists(st.tuples(NODES, NODES, st.sampled_from([None, None, True])), max_size=10),
    min_size=1,
    max_size=5,
)


@pytest.mark.parametrize("loop", LOOPS)
@settings(max_examples=examples(12), deadline=None)
@given(days=DAYS, from_view=st.booleans())
def test_any_history_gives_what_scratch_gives(
    loop: str, days: list[list[Told]], from_view: bool
) -> None:
    """Edges repeated, to themselves, back and forth; from a source, and from a view."""
    last: dict[tuple[int, int], bool] = {}
    for day, actual in zip(days, after_each(loop, days, from_view=from_view), strict=True):
        last |= {(src, dst): told is None for src, dst, told in day}
        edges = np.array([edge for edge, is_there in last.items() if is_there]).reshape(-1, 2)
        assert actual == pytest.approx(LOOPS[loop][2](edges) if len(edges) else {}, abs=1e-6)


@pytest.mark.parametrize("loop", [loop for loop in LOOPS if loop != "pagerank"])
@settings(max_examples=examples(12), deadline=None)
@given(seed=st.integers(0, 1 << 30), density=st.sampled_from([1, 3, 8]))
def test_few_links_change_a_graph(loop: str, seed: int, density: int) -> None:
    """A graph of 40 nodes, of which single edges come and go: only what may change is computed."""
    dice = np.random.default_rng(seed)
    there = {(int(a), int(b)) for a, b in dice.integers(0, 40, (40 * density, 2))}
    days: list[list[Told]] = [[(*edge, None) for edge in sorted(there)]]
    right = [LOOPS[loop][2](np.array(sorted(there)))]
    for number in range(8):
        come = [(int(a), int(b)) for a, b in dice.integers(0, 40, (number % 3, 2))]
        gone = [sorted(there)[at] for at in dice.integers(0, len(there), 1 + number % 2)]
        days.append([*((*edge, None) for edge in come), *((*edge, True) for edge in gone)])
        there = (there | {*come}) - {*gone}
        right.append(LOOPS[loop][2](np.array(sorted(there))))
    assert [pytest.approx(one) for one in right] == after_each(loop, days)


def after_each(loop: str, days: list[list[Told]], *, from_view: bool = False) -> list[Values]:
    """Return the values after each increment, summed up from the changes of the view."""
    make, view, _ = LOOPS[loop]
    flow = DataflowBuilder("loop")
    edges: Any = flow.source("edges", SCHEMA)
    if from_view:
        there = "src BIGINT NOT NULL, dst BIGINT NOT NULL, there BOOLEAN"
        days = [[(src, dst, None if gone else True) for src, dst, gone in day] for day in days]
        flow = DataflowBuilder("loop")
        latest = Latest(there, "src, dst", gone="there")
        edges = flow.stage("graph", latest, rows=flow.source("edges", there)).latest
    flow.stage("loop", make(from_view), edges=edges)
    result = run_dataflow(flow.build(), {"edges": days})
    held: Counter[tuple[int, float]] = Counter()
    after = []
    for epoch in result.outputs[f"loop.{view}"]:
        for row in epoch:
            held[row[:2]] += row.sign
        after.append(dict((+held).elements()))
        assert len(after[-1]) == held.total(), "one value for a node"
    return after


@pytest.mark.parametrize("loop", LOOPS)
def test_any_split_gives_the_tables_of_one_batch(loop: str) -> None:
    """States and views, but for which of several nodes supports a value, and for rounding."""
    edges = power_law(40, 120, seed=6)
    every = [(*edge, None) for edge in edges.tolist()] + [(*e, True) for e in edges[::4].tolist()]
    days = [every[at : at + 25] for at in range(0, len(every), 25)]
    make, view, oracle = LOOPS[loop]
    result = check_split(loop_of(make(False)), {"edges": days})
    actual = {row[0]: row[1] for row in result.view(f"loop.{view}")}
    assert actual == pytest.approx(oracle(np.delete(edges, slice(None, None, 4), 0)), abs=1e-6)


def test_the_last_record_of_two_nodes_counts() -> None:
    """Repeated edges change nothing, and one that comes and goes was never there."""
    days: list[list[tuple[int, int, bool | None]]] = [
        [(1, 2, None), (1, 2, None), (2, 3, None), (2, 3, True), (4, 4, None)],
        [(1, 2, False), (7, 8, True)],
        [(1, 2, True), (1, 2, None)],
    ]
    result = run_dataflow(loop_of(ComponentsArrow(changes=False)), {"edges": days})
    assert dict(result.view("loop.nodes")) == {1: 1, 2: 1, 4: 4}
    assert [len(epoch) for epoch in result.outputs["loop.nodes"]] == [3, 0, 0]


def test_nodes_are_texts(tmp_path: Path) -> None:
    """As the ready stages declare it."""
    schema = "src STRING, dst STRING, gone BOOLEAN"
    flow = DataflowBuilder("texts")
    edges = flow.source("edges", schema)
    flow.stage("parts", ComponentsArrow(node="STRING", changes=False), edges=edges)
    flow.stage("steps", ReachableArrow("a", node="STRING", changes=False), edges=edges)
    flow.stage("ranks", PageRankArrow(node="STRING", changes=False), edges=edges)
    flow.stage("co", ClusteringArrow(node="STRING"), edges=edges)
    flow.stage("strong", StrongComponentsArrow(node="STRING", changes=False), edges=edges)
    flow.stage("cores", CoreNumbersArrow(node="STRING", changes=False), edges=edges)
    flow.stage("near", LabelPropagationArrow(node="STRING", changes=False), edges=edges)
    driver = Driver(LocalEngine(cache=str(tmp_path / "cache")), flow.build(), tmp_path / "t")
    texts = ["ab", "bc", "ca", "de", "ef"]
    assert_same(
        driver.dataflow,
        driver,
        [
            {"edges": [{"src": text[0], "dst": text[1], "gone": None} for text in texts]},
            {"edges": [{"src": "c", "dst": "a", "gone": True}]},
            {"edges": [{"src": "c", "dst": "d", "gone": None}, {"src": None, "dst": "a"}]},
        ],
        source="",
    )
    assert {row["node"]: row["label"] for row in driver.state("parts", "nodes")} == dict.fromkeys(
        "abcdef", "a"
    )
    assert {row["node"]: row["steps"] for row in driver.state("steps", "nodes")} == {
        node: number for number, node in enumerate("abcdef")
    }


def test_personalised_ranks_are_those_of_networkx() -> None:
    """Only the favourites get something by themselves."""
    edges = power_law(60, 200, seed=2).tolist() + [(node, (node + 1) % 60) for node in range(60)]
    stage = PageRankArrow(error=1e-10, changes=False, favourites=[1, 5])
    result = run_dataflow(loop_of(stage), {"edges": [[(*edge, None) for edge in edges]]})
    right = _pagerank_python(
        nx.DiGraph(edges), personalization={1: 1, 5: 1}, tol=1e-14, max_iter=999
    )
    assert {n: score / 2 for n, score in result.view("loop.ranks")} == pytest.approx(
        right, abs=1e-8
    )


class Katz(PageRankArrow):
    """Katz centrality: an author's linear loop in a few lines."""

    def share(self, scores: Any, links: Any) -> Any:
        """Give each link the same, however many there are."""
        return scores / 20


def test_an_author_says_what_is_shared() -> None:
    """Scores are the solution of the linear equations, after links went, too."""
    edges = power_law(40, 120, seed=4)
    days = [
        [(*edge, None) for edge in edges.tolist()],
        [(*edge, True) for edge in edges[::3].tolist()],
    ]
    result = run_dataflow(loop_of(Katz(error=1e-10, changes=False)), {"edges": days})
    actual = dict(result.view("loop.ranks"))
    there = np.delete(edges, slice(None, None, 3), 0)
    nodes, places = np.unique(there, return_inverse=True)
    src, dst = places.reshape(there.shape).T
    matrix = np.eye(len(nodes))
    np.add.at(matrix, (dst, src), -1 / 20)
    right = np.linalg.solve(matrix, np.full(len(nodes), 0.15))
    assert actual == pytest.approx(dict(zip(nodes.tolist(), right.tolist(), strict=True)), abs=1e-8)
