"""The crawl queue as a whole, in memory: document, wiring and result."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from cbp.engine.direct import LocalEngine
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.testing import run_dataflow
from stages.flows.crawl_queue import crawl_queue
from tests.cbp.engine.epochs import assert_same
from tests.driver import Driver
from tests.stages.crawl import INCREMENTS, Page, links_of, site_of, sites_of
from tests.stages.documents import same_graph

FORMS = pytest.mark.parametrize("form", ["groupwise", "arrow"])


def test_the_document_and_the_builder_give_the_same_dataflow() -> None:
    """What is registered is what the Python text says, stage by stage."""
    same_graph("crawl_queue", crawl_queue())


def test_crawl_queue_over_two_increments() -> None:
    """Links make candidates, a crawled page leaves the queue, and only what changed moves."""
    pages: list[list[Page]] = [
        [("a.x", "a", ["b.y", "b.z"]), ("a.y", "a", ["b.y"])],
        [("b.y", "b", ["b.z"])],
    ]
    result = run_dataflow(crawl_queue(minimum=0.0), {"pages": pages})
    first, second = (
        {row.url: row.score for row in epoch} for epoch in result.outputs["threshold.queue"]
    )
    assert first == {"a.x": None, "a.y": None, "b.y": 2.584963, "b.z": 2.0}
    assert second == {"b.y": None, "b.z": 2.745927}


def test_the_queue_holds_what_passes_the_threshold() -> None:
    """A higher minimum leaves fewer URLs."""
    pages = {"pages": [[("a", "a", ["b.y", "b.z"]), ("a.y", "a", ["b.y"])]]}
    low, high = (
        run_dataflow(crawl_queue(minimum=minimum), pages).last("threshold.queue")
        for minimum in (0.0, 2.5)
    )
    assert low.keys() - high.keys() == {("b", "b.z")}


@FORMS
@given(INCREMENTS)
def test_any_split_into_increments_gives_the_batch_answer(
    form: Any, increments: list[list[Page]]
) -> None:
    """Counts, crawled pages and the URLs in the queue are those of one batch."""
    result = run_dataflow(crawl_queue(minimum=0.0, form=form), {"pages": increments})
    pages = list(chain.from_iterable(increments))
    links, crawled = links_of(pages), {url for url, _, _ in pages}
    counts = {row.url: row.n for row in result.state["count_in_links.counts"] if row.url}
    sites = {r.site: r.n for r in result.state["count_in_links.counts"] if r.url is None}
    known = {row.url: (row.n, row.crawled) for row in result.state["merge.known"] if row.url}
    queue = {url: score for (_, url), score in result.last("threshold.queue").items()}
    assert (counts, sites) == (links, sites_of(links))
    assert known == {url: (links[url], url in crawled) for url in {*links, *crawled}}
    assert {url for url, score in queue.items() if score is not None} == links.keys() - crawled
    assert {url for url, score in queue.items() if score is None} == crawled


@FORMS
@given(INCREMENTS)
def test_both_groupings_give_the_same_result(form: Any, increments: list[list[Page]]) -> None:
    """Calling every site in every epoch changes no record."""
    inner = run_dataflow(crawl_queue(grouping="inner", form=form), {"pages": increments})
    outer = run_dataflow(crawl_queue(grouping="outer", form=form), {"pages": increments})
    assert (outer.outputs, outer.state) == (inner.outputs, inner.state)


def test_sites_follow_from_the_url_whatever_the_page_says() -> None:
    """A page whose `site` disagrees still meets the links to it."""
    pages: list[list[Page]] = [[("a.x", "elsewhere", ["b.y"])], [("b.y", "nowhere", [])]]
    result = run_dataflow(crawl_queue(), {"pages": pages})
    assert {row.site for row in result.state["merge.known"]} == {site_of("a.x"), site_of("b.y")}


@pytest.mark.parametrize("grouping", ["inner", "outer"])
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(increments=INCREMENTS)
def test_on_tables_the_columns_hold_what_the_records_do(
    grouping: Any,
    increments: list[list[Page]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """At every epoch, outputs in their order and state; several calls per bucket."""
    folder = tmp_path_factory.mktemp("columns")
    engine = LocalEngine(cache=str(folder / "cache"), limits=EngineLimits(call_rows=5))
    driver = Driver(engine, crawl_queue(grouping=grouping, form="arrow"), folder / "t")
    epochs = [
        {"pages": [{"url": url, "site": site, "links": links} for url, site, links in pages]}
        for pages in increments
    ]
    assert_same(crawl_queue(grouping=grouping), driver, epochs, source="")
