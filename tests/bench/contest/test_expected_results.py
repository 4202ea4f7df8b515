"""The right answer is computed apart from every candidate, and no bound lets a wrong one pass."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from cbp.engine.reference.engine import ReferenceEngine
from tests.bench.comparison.digests import digest_of
from tests.bench.comparison.result_comparison import Totals, Values
from tests.bench.contest.expected_results import CountTruth, CrawlTruth, GraphTruth
from tests.bench.workloads.crawl_pages import first_pages
from tests.bench.workloads.crawl_workload import CrawlQueue
from tests.bench.workloads.graph import Edges, coefficients_of
from tests.bench.workloads.graph_workloads import Clustering, PageRank
from tests.bench.workloads.workload import UrlCount

GRAPHS: list[Any] = [Clustering(100, 300, 3), PageRank(100, 400, 3)]


def test_counts_are_those_of_the_records() -> None:
    """What the latest increment changes, key by key; and the sum of everything."""
    workload = UrlCount(50, 3)
    truth, seen = CountTruth(workload, 50), dict.fromkeys(range(50), 1)
    for number in range(3):
        truth.take(number, 40, before=40 * number)
        ids = workload.ids(number, 40).tolist()
        for one in ids:
            seen[one] = seen.get(one, 0) + 1
    last = sorted(set(ids))
    urls = pa.array([f"http://site{i}.example.com/page/{i:X}" for i in last])
    batch = pa.RecordBatch.from_arrays([urls, pa.array([seen[i] for i in last])], ["url", "n"])
    fields = workload.dataflow(grouping="inner", form="groupwise", buckets=2).stages["count"]
    (state,) = fields.translator.states
    assert truth.emitted() == digest_of([batch], state.schema.fields)


def test_a_crawl_s_states_are_those_of_the_reference_engine() -> None:
    """First pages and increments, those beyond the named URLs too; record by record."""
    workload = CrawlQueue(60, 3)
    dataflow = workload.dataflow(grouping="inner", form="groupwise", buckets=4)
    engine, truth = ReferenceEngine(dataflow), CrawlTruth(workload)
    for pages in first_pages(workload):
        engine.feed("pages", pages.to_pylist())
    before, drawn = 0, []
    for number, size in enumerate((20, 30, 20)):
        engine.feed("pages", workload.records(number, size, before=before).to_pylist())
        truth.take(number, size, before=before)
        drawn.append(workload.drawn(number, size, before=before))
        before += size
    engine.run_until_idle()
    digests = {}
    for (stage, state), records in workload.states(drawn).items():
        actual = engine.state(stage, state)
        assert sorted(map(repr, records.to_pylist())) == sorted(map(repr, actual))
        schema = dataflow.stages[stage].translator.state(state).schema
        digests[f"{stage}.{state}"] = digest_of(records.to_batches(), schema.fields)
    assert truth.unlike("cbp", Totals(digests)) == ""
    assert "holds other records" in truth.unlike("cbp", Totals({}))


def test_a_crawl_from_empty_knows_nothing_at_first() -> None:
    """Then its states are those of the increments alone."""
    workload = CrawlQueue(60, 3, from_empty=True)
    assert workload.loaded_keys == workload.state_records == 0
    assert all(records.num_rows == 0 for records in workload.states().values())
    assert list(first_pages(workload)) == []


@pytest.mark.parametrize("workload", GRAPHS, ids=["clustering", "pagerank"])
def test_a_stale_an_empty_and_a_constant_answer_fail(workload: Any) -> None:
    """Also after several increments, all but the last of which were taken in."""
    truth = GraphTruth(workload)
    pages = range(100)
    first = stale = Values(dict(enumerate(truth.after(0).tolist())))
    for number in range(3):
        truth.take(number, 10, before=0)
        right = Values(dict(enumerate(truth.after(number + 1).tolist())))
        assert truth.unlike(f"stale {number}", first)
        assert truth.unlike("late", stale), "all increments but the latest were taken in"
        assert truth.unlike(f"empty {number}", Values({}))
        assert truth.unlike(f"constant {number}", Values(dict.fromkeys(pages, 1.0)))
        assert truth.unlike(f"nan {number}", Values(dict.fromkeys(pages, float("nan"))))
        assert truth.unlike(f"moved {number}", Values({i + 1: 1.0 for i in pages}))
        assert truth.unlike("right", right) == ""
        assert truth.unlike("late", right) == "", "it is right in the end"
        stale = right
    error, of_stale = truth.errors(first)
    assert error is not None
    assert of_stale is not None
    assert 0 < error == of_stale
    assert truth.errors(right)[0] == 0


def test_coefficients_are_those_of_pairs_of_neighbours() -> None:
    """A triangle with a tail: 1 in two corners, a third where the tail begins."""
    table = pa.table({"src": [0, 1, 2, 2, 3], "dst": [1, 2, 0, 3, 3]})
    edges = Edges(table["src"].to_numpy(), table["dst"].to_numpy())
    assert coefficients_of(edges, 5).tolist() == pytest.approx([1, 1, 1 / 3, 0, 0])
