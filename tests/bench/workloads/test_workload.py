"""Increments come from the seed alone; the dataflows are those that users register.

A crawl begins with the state that its first pages lead to, its keys counted, and reads no page
twice.
"""

from __future__ import annotations

import numpy as np
import pytest

from cbp.engine.reference.engine import ReferenceEngine
from tests.bench.workloads.crawl_pages import first_pages
from tests.bench.workloads.workload import CrawlQueue, UrlCount, Workload

WORKLOADS: dict[str, Workload] = {
    "uniform": UrlCount(1000, 7),
    "zipf": UrlCount(1000, 7, "zipf"),
    "distinct": UrlCount(1000, 7, "distinct"),
    "crawl": CrawlQueue(1000, 7),
}


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_the_seed_gives_the_increment(workload: Workload) -> None:
    """Every candidate, and every later run, reads the same records; each increment its own."""
    first = workload.records(3, 50, before=0)
    assert first.equals(workload.records(3, 50, before=0))
    assert not first.equals(workload.records(4, 50, before=0))
    assert first.num_rows == 50


def test_another_seed_gives_another_increment() -> None:
    """A second run with another seed is an independent sample."""
    for make in (UrlCount, CrawlQueue):
        assert (
            not make(1000, 1)
            .records(0, 50, before=0)
            .equals(make(1000, 2).records(0, 50, before=0))
        )


def test_some_uniform_keys_are_new() -> None:
    """About one key in twenty is not in state yet."""
    urls = UrlCount(10_000).records(0, 10_000, before=0).column("url").to_pylist()
    known = set(UrlCount.urls(np.arange(10_000)))
    assert 0.03 < sum(url not in known for url in urls) / len(urls) < 0.07


def test_zipf_keys_are_skewed_and_within_range() -> None:
    """The most popular key has its share of 1 / log(keys); none is outside."""
    workload = UrlCount(10_000, keys="zipf")
    urls = workload.records(0, 20_000, before=0).column("url").to_pylist()
    top = max(urls.count(url) for url in set(urls[:200]))
    assert 0.05 < top / len(urls) < 0.12
    assert set(urls) <= set(UrlCount.urls(np.arange(10_502)))


def test_distinct_keys_are_all_in_state() -> None:
    """A hit rate of one touches every key once, in another order each time."""
    workload = UrlCount(1000, keys="distinct")
    urls = workload.records(0, 1000, before=0).column("url").to_pylist()
    assert set(urls) == set(UrlCount.urls(np.arange(1000)))
    few = workload.records(1, 100, before=0).column("url").to_pylist()
    assert len(set(few)) == 100
    assert set(few) <= set(urls)


def test_the_keys_of_a_crawl_are_counted() -> None:
    """The figure is how many URLs the first pages are or name, not how many there are."""
    workload = CrawlQueue(5000)
    pages = [page for table in first_pages(workload) for page in table.to_pylist()]
    known = {url for page in pages for url in (page["url"], *page["links"])}
    assert len(pages) == 500
    assert workload.loaded_keys == len(known)
    assert 2000 < len(known) < 5000
    assert all(page["site"] == page["url"].partition(".")[0] for page in pages)


@pytest.mark.parametrize("keys", [30, 1000, 1001])
def test_the_state_of_a_crawl_is_that_of_its_first_pages(keys: int) -> None:
    """Record by record, whatever the sites are; as if the dataflow had read them."""
    workload = CrawlQueue(keys, 3)
    dataflow = workload.dataflow(grouping="inner", form="groupwise", buckets=4)
    engine = ReferenceEngine(dataflow)
    for pages in first_pages(workload):
        engine.feed("pages", pages.to_pylist())
    engine.run_until_idle()
    states = workload.states()
    for (stage, state), records in states.items():
        actual = engine.state(stage, state)
        assert sorted(map(repr, records.to_pylist())) == sorted(map(repr, actual))
    assert workload.state_records == sum(records.num_rows for records in states.values())


def test_no_page_comes_twice() -> None:
    """Whatever the sizes of increments, and when all URLs that there are have been crawled."""
    workload = CrawlQueue(1000, 7)
    seen = {url for table in first_pages(workload) for url in table.column("url").to_pylist()}
    assert len(seen) == 100
    before = 0
    for number, size in enumerate([400, 50, 50, 5, 5, 600]):
        pages = workload.records(number, size, before=before).column("url").to_pylist()
        assert len(set(pages)) == size
        assert not seen & {*pages}
        seen |= {*pages}
        before += size


def test_the_crawl_queue_on_columns_keeps_its_tables() -> None:
    """Only the stages with state have another form; ours and the black box may have either."""
    plain, columns = (
        CrawlQueue(100).dataflow(grouping="outer", form=form, buckets=4)
        for form in ("groupwise", "arrow")
    )
    in_arrow = {n for n, node in columns.stages.items() if node.translator.form == "arrow"}
    assert in_arrow == {n for n, node in plain.stages.items() if node.translator.states}
    for name, node in plain.stages.items():
        mine, theirs = node.translator, columns.stages[name].translator
        assert (mine.key, mine.states, mine.outputs) == (theirs.key, theirs.states, theirs.outputs)
        assert [(i.name, i.schema) for i in mine.inputs] == [
            (i.name, i.schema) for i in theirs.inputs
        ]


def test_grouping_and_buckets_reach_every_stage() -> None:
    """Ours and the black box are measured with the grouping that was asked for."""
    dataflow = CrawlQueue(100).dataflow(grouping="outer", form="groupwise", buckets=4)
    states = [s for node in dataflow.stages.values() for s in node.translator.states]
    assert len(states) >= 2
    assert {state.grouping for state in states} == {"outer"}
    assert {node.buckets for node in dataflow.stages.values()} == {4}
