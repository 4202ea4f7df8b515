"""What cannot be measured is refused before anything starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.bench import BenchOptions, BenchRefusedError, run_bench
from tests.bench.options import CANDIDATES, OURS, PAPER, peers_by_default, sizes_by_default

REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"workload": "sort"}, "workload", "url-count, crawl-queue, clustering, pagerank"),
    ({"keys": "normal"}, "keys", "uniform, zipf, distinct"),
    ({"forms": ("groupwise", "cobol")}, "form", "use one of groupwise"),
    ({"forms": ()}, "form", "name one of groupwise"),
    ({"forms": ("arrow",), "workload": "pagerank"}, "form", "only in the form groupwise"),
    ({"forms": ("sql",), "workload": "crawl-queue"}, "form", "form groupwise or arrow"),
    ({"against": ("blackbox/sql",), "workload": "crawl-queue"}, "form", "form groupwise or arrow"),
    ({"against": ("blackbox/cobol",)}, "form", "form groupwise or arrow or sql"),
    ({"against": ("blackbox/sql",)}, "against", "does not run SQL.*; name blackbox or black"),
    ({"against": ("scan/sql",)}, "against", "name scan or scan/arrow"),
    ({"forms": ("sql",), "master": "none"}, "form", "sql needs Spark"),
    ({"against": ("polars/arrow",)}, "against", "polars has no form"),
    ({"against": ("flink",)}, "against", "use one of jobs"),
    ({"against": (OURS,)}, "against", "always measured"),
    ({"against": ("merge",), "master": "none"}, "against", "needs Spark"),
    ({"against": ("polars",), "workload": "crawl-queue"}, "against", "has no crawl-queue; name b"),
    (
        {"against": ("merge",), "workload": "pagerank"},
        "against",
        "files has no pagerank; name b",
    ),
    ({"against": ("broadcast",)}, "against", "has no url-count"),
    ({"against": ("plain",), "workload": "pagerank"}, "against", "plain has no pagerank"),
    ({"edges": 10}, "edges", "only with clustering and pagerank"),
    ({"threshold": 0.1, "workload": "clustering"}, "threshold", "only with pagerank"),
    ({"threshold": -0.1, "workload": "pagerank"}, "threshold", "0 or more"),
    ({"edges": -1, "workload": "pagerank"}, "edges", "1 or more"),
    ({"edges": 999, "state_keys": (1000,), "workload": "pagerank"}, "edges", "the number of nodes"),
    ({"edges": 2000, "state_keys": (100,), "workload": "pagerank"}, "edges", "at most 1,250"),
    ({"state_keys": (99,), "workload": "clustering"}, "nodes", "at least 100"),
    ({"state_keys": (0,)}, "state-keys", "1 or more"),
    ({"increment": ()}, "increment", "at least one"),
    ({"rounds": (0,)}, "rounds", "at least 1"),
    ({"rounds": ()}, "rounds", "at least 1"),
    ({"error": 0.1}, "error", "only with pagerank"),
    ({"error": 0.0, "workload": "pagerank"}, "error", "above 0"),
    ({"from_empty": True}, "from-empty", "only with crawl-queue"),
    ({"age": -1}, "age", "0 or more"),
    ({"hit_rates": (0.1,)}, "hit-rates", "--keys distinct"),
    ({"hit_rates": (0.1, 2.0), "keys": "distinct"}, "hit-rates", "up to 1"),
    ({"grouping": "left"}, "grouping", "inner, outer"),
    ({"soak": True, "against": ("merge",)}, "soak", "leave --against out"),
    ({"soak": True, "increment": (1, 2)}, "soak", "takes only one"),
    ({"soak": True, "forms": ("groupwise", "arrow")}, "soak", "takes only one"),
    ({"soak": True, "epochs": 1}, "epochs", "at least 2"),
]


_STREAMING = {"streaming", "streaming-python-apply", "streaming-python-tws"}
_COUNTING = {
    *("merge-files", "merge-vectors", "rewrite", "polars", "service", *_STREAMING),
    *("duckdb-key", "duckdb-update", "duckdb-parquet"),
}
_GRAPHS = {"scratch", "warm"}
PEERLESS = {
    "url-count": {"plain", "broadcast", *PAPER, *_GRAPHS},
    "crawl-queue": {"plain", "broadcast", "recompute", *PAPER, *_GRAPHS, *_COUNTING},
    "clustering": {"broadcast", *PAPER, *_COUNTING},
    "pagerank": {"plain", *_COUNTING},
}
"""Workload to the candidates that lack it."""


@pytest.mark.parametrize(("choice", "option", "why"), REFUSED, ids=lambda v: str(v)[:40])
def test_a_choice_that_cannot_run_is_refused(choice: dict[str, Any], option: str, why: str) -> None:
    """The refusal names the option and says what to give instead."""
    with pytest.raises(BenchRefusedError, match=why) as raised:
        replace(BenchOptions(), **choice).check()
    assert raised.value.details == {"option": option}


def test_a_refusal_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder is made and no Spark started for a run that cannot be."""
    monkeypatch.setattr("tests.bench.run._folder", lambda root: pytest.fail("made a folder"))
    with pytest.raises(BenchRefusedError):
        run_bench(BenchOptions(forms=("cobol",)))


def test_every_peer_can_be_named() -> None:
    """All candidates together are a valid choice, but those of another workload."""
    named = set()
    for workload, left_out in PEERLESS.items():
        peers = tuple(name for name in CANDIDATES if name != OURS and name not in left_out)
        BenchOptions(workload, peers, state_keys=(1000,), increment=(10,)).check()
        named |= {*peers}
    assert named == {*CANDIDATES} - {OURS}


def test_streaming_python_is_both_of_its_operators() -> None:
    """Each is a candidate of its own in the results, and takes part once."""
    both = ("streaming-python-apply", "streaming-python-tws")
    options = replace(BenchOptions(), against=("rewrite", "streaming-python"))
    options.check()
    assert options.entrants == (OURS, "rewrite", *both)
    again = replace(options, against=("streaming-python-tws", "streaming-python"))
    assert again.entrants == (OURS, *both[::-1])
    with pytest.raises(BenchRefusedError, match="streaming-python-apply has no crawl-queue"):
        replace(options, workload="crawl-queue", against=("streaming-python",)).check()


def test_a_candidate_without_its_package_is_refused_before_any_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the one that lacks it: the other operator can still be named alone."""
    monkeypatch.setattr("tests.bench.candidates.peers.streaming.tws_runs", lambda: False)
    monkeypatch.setattr("tests.bench.run._folder", lambda root: pytest.fail("made a folder"))
    with pytest.raises(BenchRefusedError, match="name streaming-python-apply alone"):
        run_bench(BenchOptions(against=("streaming-python",)))
    with pytest.raises(pytest.fail.Exception, match="made a folder"):
        run_bench(BenchOptions(against=("streaming-python-apply",)))


def test_peers_and_sizes_by_default_can_be_run() -> None:
    """A workload named alone is benchmarked."""
    for workload in PEERLESS:
        keys, records = sizes_by_default(workload)
        peers = peers_by_default(workload)
        assert peers
        BenchOptions(workload, peers, state_keys=(keys,), increment=(records,)).check()


def test_hit_rates_are_shares_of_the_state() -> None:
    """Each state size has its own increments; none is empty, none comes twice."""
    options = replace(BenchOptions(), keys="distinct", hit_rates=(0.0001, 0.001, 0.5, 1.0))
    options.check()
    assert options.sizes(1000) == (1, 500, 1000)
    assert options.sizes(100_000) == (10, 100, 50_000, 100_000)


def test_results_name_what_is_not_the_default() -> None:
    """Two workloads that differ never share a name in the results."""
    base = BenchOptions()
    assert base.label == "url-count"
    assert replace(base, keys="zipf", grouping="outer").label == "url-count/zipf/outer"
    graph = replace(base, workload="pagerank", edges=500, threshold=0.1)
    assert graph.label == "pagerank/edges-500/threshold-0.1"
    assert replace(base, keys="distinct", age=200).label == "url-count/distinct/age-200"
