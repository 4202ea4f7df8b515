"""Increments come from the seed alone; the dataflows are those that users register."""

from __future__ import annotations

import numpy as np
import pytest

from controller.bench.workload import CrawlQueue, UrlCount, Workload

WORKLOADS: dict[str, Workload] = {
    "uniform": UrlCount(1000, 7),
    "zipf": UrlCount(1000, 7, "zipf"),
    "distinct": UrlCount(1000, 7, "distinct"),
    "crawl": CrawlQueue(1000, 7),
}


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_the_seed_gives_the_increment(workload: Workload) -> None:
    """Every candidate, and every later run, reads the same records; each increment its own."""
    first = workload.records(3, 50)
    assert first.equals(workload.records(3, 50))
    assert not first.equals(workload.records(4, 50))
    assert first.num_rows == 50


def test_another_seed_gives_another_increment() -> None:
    """A second run with another seed is an independent sample."""
    for make in (UrlCount, CrawlQueue):
        assert not make(1000, 1).records(0, 50).equals(make(1000, 2).records(0, 50))


def test_some_uniform_keys_are_new() -> None:
    """About one key in twenty is not in state yet."""
    urls = UrlCount(10_000).records(0, 10_000).column("url").to_pylist()
    known = set(UrlCount.urls(np.arange(10_000)))
    assert 0.03 < sum(url not in known for url in urls) / len(urls) < 0.07


def test_zipf_keys_are_skewed_and_within_range() -> None:
    """The most popular key has its share of 1 / log(keys); none lies outside."""
    workload = UrlCount(10_000, keys="zipf")
    urls = workload.records(0, 20_000).column("url").to_pylist()
    top = max(urls.count(url) for url in set(urls[:200]))
    assert 0.05 < top / len(urls) < 0.12
    assert set(urls) <= set(UrlCount.urls(np.arange(10_502)))


def test_distinct_keys_are_all_in_state() -> None:
    """A hit rate of one touches every key once, in another order each time."""
    workload = UrlCount(1000, keys="distinct")
    urls = workload.records(0, 1000).column("url").to_pylist()
    assert set(urls) == set(UrlCount.urls(np.arange(1000)))
    few = workload.records(1, 100).column("url").to_pylist()
    assert len(set(few)) == 100
    assert set(few) <= set(urls)


def test_the_first_pages_name_as_many_urls_as_asked_for() -> None:
    """The state of a crawl begins at about the size that was chosen."""
    pages = [page for table in CrawlQueue(5000).initial() for page in table.to_pylist()]
    named = {url for page in pages for url in page["links"]}
    assert len(pages) == 500
    assert 2000 < len(named) < 5000
    assert all(page["site"] == page["url"].partition(".")[0] for page in pages)


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
