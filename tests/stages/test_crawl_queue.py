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
from tests.sampling import examples
from tests.stages.crawl import INCREMENTS, Page, links_of, queue_of, site_of, sites_of
from tests.stages.documents import same_graph
from tests.stages.former_crawl_queue import former_crawl_queue

FORMS = pytest.mark.parametrize("form", ["groupwise", "arrow", "kept"])


def test_the_document_and_the_builder_give_the_same_dataflow() -> None:
    """What is registered is what the Python text says, stage by stage."""
    same_graph("crawl_queue", crawl_queue())


@FORMS
def test_crawl_queue_over_two_increments(form: Any) -> None:
    """Links make candidates, a crawled page is deleted, and only what changed is a change."""
    pages: list[list[Page]] = [
        [("a.x", "a", ["b.y", "b.z"]), ("a.y", "a", ["b.y"])],
        [("b.y", "b", ["b.z"])],
    ]
    result = run_dataflow(crawl_queue(minimum=0.0, form=form), {"pages": pages})
    assert result.view("threshold.queue") == [("b", "b.z", 2.745927)]
    first, second = result.outputs["threshold.queue"]
    assert sorted(tuple(row)[1:4] for row in first) == [
        ("b.y", 2.584963, "insert"),
        ("b.z", 2.0, "insert"),
    ]
    assert [tuple(row)[1:4] for row in second] == [
        ("b.y", 2.584963, "delete"),
        ("b.z", 2.0, "update_before"),
        ("b.z", 2.745927, "update_after"),
    ]


@FORMS
def test_the_queue_holds_what_passes_the_threshold(form: Any) -> None:
    """A higher minimum leaves fewer URLs."""
    pages = {"pages": [[("a", "a", ["b.y", "b.z"]), ("a.y", "a", ["b.y"])]]}
    low, high = (
        run_dataflow(crawl_queue(minimum=minimum, form=form), pages).view("threshold.queue")
        for minimum in (0.0, 2.5)
    )
    assert [row.url for row in low] == ["b.y", "b.z"]
    assert [row.url for row in high] == ["b.y"]


@FORMS
@given(INCREMENTS)
def test_any_split_into_increments_gives_the_answer_of_plain_python(
    form: Any, increments: list[list[Page]]
) -> None:
    """Counts, crawled pages and the queue are those of plain Python after the same increments."""
    result = run_dataflow(crawl_queue(minimum=0.0, form=form), {"pages": increments})
    pages = list(chain.from_iterable(increments))
    links, crawled = links_of(pages), {url for url, _, _ in pages}
    counts = {row.url: row.n for row in result.state["count_in_links.counts"] if row.url}
    sites = {r.site: r.n for r in result.state["count_in_links.counts"] if r.url is None}
    known = {row.url: (row.n, row.crawled) for row in result.state["merge.known"] if row.url}
    queue = {row.url: row.score for row in result.view("threshold.queue")}
    assert (counts, sites) == (links, sites_of(links))
    assert known == {url: (links[url], url in crawled) for url in {*links, *crawled}}
    assert queue == queue_of(increments)
    assert queue.keys() == links.keys() - crawled


@settings(max_examples=examples(13))
@given(INCREMENTS)
def test_the_queue_is_the_last_scores_of_the_former_stages(increments: list[list[Page]]) -> None:
    """A dataflow that was registered before goes on, and its readers find the same queue."""
    former = run_dataflow(former_crawl_queue(), {"pages": increments})
    last = former.last("threshold.queue")
    view = run_dataflow(crawl_queue(), {"pages": increments}).view("threshold.queue")
    assert {(row.site, row.url): row.score for row in view} == {
        url: score for url, score in last.items() if score is not None
    }
    assert {url for (_, url), score in last.items() if score is None} == {
        url for pages in increments for url, _, _ in pages
    }


@pytest.mark.parametrize("form", ["groupwise", "arrow"])
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


@pytest.mark.parametrize(
    ("form", "grouping"), [("arrow", "inner"), ("arrow", "outer"), ("kept", "inner")]
)
@settings(
    max_examples=examples(4),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(increments=INCREMENTS)
def test_on_tables_all_forms_hold_the_same(
    form: Any,
    grouping: Any,
    increments: list[list[Page]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """At every epoch, outputs in their order and state; several calls per bucket."""
    folder = tmp_path_factory.mktemp("columns")
    engine = LocalEngine(cache=str(folder / "cache"), limits=EngineLimits(call_rows=5))
    driver = Driver(engine, crawl_queue(grouping=grouping, form=form), folder / "t")
    epochs = [
        {"pages": [{"url": url, "site": site, "links": links} for url, site, links in pages]}
        for pages in increments
    ]
    assert_same(crawl_queue(grouping=grouping), driver, epochs, source="")
