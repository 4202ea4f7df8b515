"""The applications on real webs: two manuals and Python's modules, against plain Python.

Oracles are sets, Counter and networkx. By default some pages of each web are read; with
`-m soak` all of them. The direct engine runs without Spark, in increments of many pages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from networkx.algorithms.link_analysis.pagerank_alg import _pagerank_python

from cbp import DataflowBuilder
from cbp.engine.direct import LocalEngine
from cbp.model.dataflow.dataflow import Dataflow
from cbp.testing import run_dataflow
from stages.flows.clustering_by_messages import clustering_by_messages as clustering
from stages.flows.crawl_queue import crawl_queue
from stages.flows.pagerank_in_phases import pagerank_in_phases as pagerank
from stages.flows.set_diff import set_diff
from stages.translators.url_count import UrlCount
from tests.driver import Driver
from tests.stages.crawl import links_of, queue_of, site_of, sites_of
from tests.stages.manuals import WEBS, Edge, numbered, pages_of
from tests.stages.reference_pagerank import from_scratch
from tests.stages.reference_set_diff import oracle

FEW, ALL_PAGES = 60, None
SIZES = [FEW, pytest.param(ALL_PAGES, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])]
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)

sizes = pytest.mark.parametrize("limit", SIZES, ids=lambda limit: "some" if limit else "all")
webs = pytest.mark.parametrize("web", WEBS)


def parts(records: Sequence[Any], increments: int) -> list[list[Any]]:
    """Deal records to increments, in turn."""
    return [list(records[at::increments]) for at in range(increments)]


def driven(
    folder: Path, dataflow: Dataflow, sources: Mapping[str, Sequence[Sequence[Any]]]
) -> Driver:
    """Run increments of every source on the direct engine."""
    driver = Driver(LocalEngine(cache=str(folder / "cache")), dataflow, folder / "tables")
    names = {name: dataflow.sources[name].schema.names for name in sources}
    for each in zip(*sources.values(), strict=True):
        for source, records in zip(sources, each, strict=True):
            rows = [dict(zip(names[source], record, strict=True)) for record in records]
            driver.feed(source, rows)
        driver.run_until_idle()
    return driver


def last(driver: Driver, flow: str, key: str, value: str) -> dict[Any, Any]:
    """Return the last value per key of a flow."""
    return {row[key]: row[value] for rows in driver.outputs(flow) for row in rows}


@pytest.mark.part(every=3, first=2)
@webs
@sizes
def test_links_are_counted_as_counter_does(web: str, limit: int | None, tmp_path: Path) -> None:
    """Every link of every page, in five increments; the last total per target."""
    targets = [(to,) for _, _, links in pages_of(web, limit) for to in links or ()]
    builder = DataflowBuilder("count")
    builder.stage("count", UrlCount(), urls=builder.source("urls", "url STRING"))
    driver = driven(tmp_path, builder.build(), {"urls": parts(targets, 5)})
    assert last(driver, "count.totals", "url", "n") == Counter(to for (to,) in targets)
    assert len(targets) > 100


@pytest.mark.part(every=3, first=2)
@webs
@sizes
def test_two_crawls_differ_as_sets_do(web: str, limit: int | None, tmp_path: Path) -> None:
    """One crawler reads the even pages, one the odd ones; an hour has as many as a tenth."""
    pages = pages_of(web, limit)
    hour = max(1, len(pages) // 20)
    sides = [
        [
            (to, NOON + timedelta(hours=at // hour))
            for at, (_, _, links) in enumerate(pages[side::2])
            for to in links or ()
            if to
        ]
        for side in (0, 1)
    ]
    size = max(map(len, sides)) // 3 + 1  # cut anywhere, also within an hour
    increments = [[crawl[at : at + size] for at in range(0, 3 * size, size)] for crawl in sides]
    driver = driven(tmp_path, set_diff(), dict(zip("ab", increments, strict=True)))
    expected = oracle(*sides)
    for side in "ab":
        actual = [{row["url"] for row in epoch} for epoch in driver.outputs(f"diff.{side}_diff")]
        assert actual == expected[side][: len(actual)]
        # The last hour of either side is still open.
        assert len(actual) >= len(expected[side]) - 2 > 0
    assert any(chain.from_iterable(expected.values()))


@pytest.mark.part(every=3, first=2)
@webs
@sizes
def test_the_queue_is_what_links_say(web: str, limit: int | None, tmp_path: Path) -> None:
    """Pages come in four increments; counts per URL and site, and who is in the queue."""
    pages = pages_of(web, limit)
    read = [page for at, page in enumerate(pages) if at % 3]  # the others are only linked to
    driver = driven(tmp_path, crawl_queue(minimum=0.0), {"pages": parts(read, 4)})
    links, crawled = links_of(read), {url for url, _, _ in read}
    counts = driver.state("count_in_links", "counts")
    assert {row["url"]: row["n"] for row in counts if row["url"]} == links
    assert {row["site"]: row["n"] for row in counts if row["url"] is None} == sites_of(links)
    known = {row["url"]: row for row in driver.state("merge", "known") if row["url"]}
    assert {url: row["crawled"] for url, row in known.items()} == {
        url: url in crawled for url in {*links, *crawled}
    }
    assert all(row["site"] == site_of(url) for url, row in known.items())
    queue = {row["url"]: row["score"] for row in driver.state("threshold", "queue")}
    assert queue == queue_of(parts(read, 4))
    assert queue.keys() == links.keys() - crawled
    assert queue


@pytest.mark.part(every=12, first=10)
@pytest.mark.parametrize("increments", [1, 2, 5, 20])
@webs
def test_coefficients_are_those_of_networkx(web: str, increments: int) -> None:
    """It is that of the undirected graph of links, in both forms, whatever the increments."""
    check_coefficients(numbered(pages_of(web, FEW)), increments)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("increments", [1, 20])
@webs
def test_coefficients_of_all_pages_are_those_of_networkx(web: str, increments: int) -> None:
    """It holds for whole webs, with hubs that know nearly everybody."""
    check_coefficients(numbered(pages_of(web, 600)), increments)


def check_coefficients(edges: list[Edge], increments: int) -> None:
    expected = nx.clustering(nx.Graph([(a, b) for a, b in edges if a != b]))
    for multicast in (False, True):
        arrivals = {"edges": parts(edges, increments)}
        actual = run_dataflow(clustering(multicast=multicast), arrivals)
        assert dict(actual.view("nodes.latest")) == pytest.approx(expected)
    assert max(expected.values()) > 0


@pytest.mark.soak
@webs
@sizes
def test_ranks_are_those_of_networkx(web: str, limit: int | None) -> None:
    """At threshold 0, after two increments: within 1e-9 of scratch, 1e-8 in L1 of networkx."""
    edges = numbered(pages_of(web, limit and limit * 2 // 3))
    arrivals = {"edges": [edges[: len(edges) // 2], edges[len(edges) // 2 :]]}
    ranks = run_dataflow(pagerank(threshold=0.0), arrivals).last("rank.pages")
    assert ranks == pytest.approx(from_scratch(edges), rel=0, abs=1e-9)
    theirs = _pagerank_python(nx.DiGraph(edges), alpha=0.85, max_iter=1000, tol=1e-14)
    assert sum(abs(ranks[page] / len(ranks) - rank) for page, rank in theirs.items()) < 1e-8
