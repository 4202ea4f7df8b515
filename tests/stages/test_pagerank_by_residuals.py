"""PageRank by residuals: power iteration from scratch is the oracle, under any history."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp import DataflowBuilder
from cbp.engine.direct import LocalEngine
from cbp.errors import DefinitionError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.testing import run_dataflow
from stages.translators.latest import Latest
from stages.translators.pagerank_by_residuals import PageRankByResiduals
from tests.driver import Driver
from tests.sampling import examples

EDGES = "src BIGINT, dst BIGINT, there BOOLEAN"
Edge = tuple[int, int]
Change = tuple[int, int, bool | None]
"""Two pages, and whether the link comes; else it goes."""

NODES = st.integers(0, 7)
DAYS = st.lists(
    st.lists(st.tuples(NODES, NODES, st.sampled_from([True, True, None])), max_size=10),
    min_size=1,
    max_size=5,
)


def ranked(error: float, supersteps: int | None = None) -> Dataflow:
    """Return the scores of pages along the links that there are."""
    flow = DataflowBuilder("web")
    latest = Latest(EDGES, "src, dst", gone="there")
    edges = flow.stage("graph", latest, rows=flow.source("edges", EDGES))
    stage = PageRankByResiduals(error=error)
    if supersteps:
        stage.amounts = replace(stage.amounts, supersteps=supersteps)
    flow.stage("rank", stage, edges=edges.latest)
    return flow.build()


def links_after(days: Iterable[Sequence[Change]]) -> list[Edge]:
    last = {(src, dst): there for day in days for src, dst, there in day}
    return sorted(edge for edge, there in last.items() if there)


def scores(edges: Sequence[Edge], damping: float = 0.85) -> dict[int, float]:
    """Return the scores from scratch: power iteration to the last digit."""
    pages = sorted({page for edge in edges for page in edge})
    at = {page: number for number, page in enumerate(pages)}
    src, dst = (np.array([at[edge[end]] for edge in edges], np.int64) for end in (0, 1))
    links = np.bincount(src, minlength=len(pages))
    actual: Any = np.ones(len(pages))
    for _ in range(400):
        given = np.bincount(dst, actual[src] / links[src], len(pages))
        actual = 1 - damping + damping * given
    return dict(zip(pages, actual.tolist(), strict=True))


def mean_error(actual: dict[int, float], right: dict[int, float]) -> float:
    assert actual.keys() == right.keys()
    return sum(abs(actual[page] - right[page]) for page in right) / max(1, len(right))


@pytest.mark.parametrize("error", [1e-2, 1e-6, 1e-8])
@settings(max_examples=examples(5), deadline=None)
@given(days=DAYS)
def test_after_any_history_the_error_is_the_declared_one(
    error: float, days: list[list[Change]]
) -> None:
    """Links come and go, pages with them; each increment is one epoch."""
    result = run_dataflow(ranked(error), {"edges": days})
    epochs, held = result.outputs["rank.ranks"], dict[int, float]()
    assert len(epochs) == len(days)
    for number, epoch in enumerate(epochs, 1):
        for row in epoch:
            if row.sign > 0:
                held[row.node] = row.score
            elif held[row.node] == row.score:
                del held[row.node]
        assert mean_error(held, scores(links_after(days[:number]))) <= error


@settings(max_examples=examples(4), deadline=None)
@given(days=DAYS)
def test_a_chain_of_epochs_is_as_exact(days: list[list[Change]]) -> None:
    """Also if increments come while amounts are under way."""
    for at_once in (False, True):
        result = run_dataflow(ranked(1e-3, supersteps=1), {"edges": days}, at_once=at_once)
        right = scores(links_after(days))
        assert mean_error(dict(result.view("rank.ranks")), right) <= 1e-3


def test_what_is_left_after_all_links_went_is_nothing() -> None:
    """Nothing builds up: a page that is linked again is as good as new."""
    ring: list[Change] = [(n, (n + 1) % 5, True) for n in range(5)]
    gone: list[Change] = [(src, dst, None) for src, dst, _ in ring]
    once = run_dataflow(ranked(1e-6), {"edges": [ring]})
    again = run_dataflow(ranked(1e-6), {"edges": [ring, gone] * 3 + [ring]})
    assert again.state["rank.pages"] == once.state["rank.pages"]
    empty = run_dataflow(ranked(1e-6), {"edges": [ring, gone]})
    assert empty.state["rank.pages"] == empty.state["rank.links"] == []


@pytest.mark.soak
def test_on_tables_scores_are_those_of_networkx(tmp_path: Path) -> None:
    """With dangling pages, up to the sum; and a small change calls few pages."""
    dice = random.Random(5)
    driver = Driver(LocalEngine(cache=str(tmp_path / "cache")), ranked(1e-6), tmp_path / "t")
    days: list[list[Change]] = [
        [(dice.randrange(60), int(60 * dice.random() ** 2), True) for _ in range(150)]
    ]
    days.append([(*edge, None) for edge in links_after(days)[::9]])
    for day in days:
        driver.feed("edges", [dict(zip(("src", "dst", "there"), e, strict=True)) for e in day])
        driver.run_until_idle()
        actual = {row["node"]: row["score"] for row in driver.state("rank", "ranks")}
    right = scores(links_after(days))
    assert mean_error(actual, right) <= 1e-6
    total = sum(right.values())
    assert nx.DiGraph(links_after(days)).number_of_nodes() == len(actual)
    assert {p: s / total for p, s in right.items()} == pytest.approx(pagerank(links_after(days)))


def pagerank(edges: Sequence[Edge]) -> dict[int, float]:
    """Return the usual PageRank of networkx, in plain Python."""
    from networkx.algorithms.link_analysis.pagerank_alg import _pagerank_python

    ranks: dict[int, float] = _pagerank_python(nx.DiGraph(edges), tol=1e-14, max_iter=1000)
    return ranks


@pytest.mark.parametrize(
    "wrong", [{"damping": 1.0}, {"error": 0.0}, {"error": float("nan")}, {"damping": -1}]
)
def test_wrong_parameters_are_refused(wrong: dict[str, float]) -> None:
    """At registration."""
    with pytest.raises(DefinitionError):
        PageRankByResiduals(**wrong)
