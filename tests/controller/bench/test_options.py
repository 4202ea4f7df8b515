"""What cannot be measured is refused before anything starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.bench import BenchOptions, BenchRefusedError, run_bench
from controller.bench.options import CANDIDATES, OURS

REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"workload": "sort"}, "workload", "url-count, crawl-queue"),
    ({"keys": "normal"}, "keys", "uniform, zipf, distinct"),
    ({"forms": ("groupwise", "cobol")}, "form", "is none of groupwise"),
    ({"forms": ()}, "form", "name one of groupwise"),
    ({"forms": ("arrow",), "workload": "crawl-queue"}, "form", "groupwise only"),
    ({"against": ("flink",)}, "against", "is none of merge"),
    ({"against": (OURS,)}, "against", "takes part anyway"),
    ({"against": ("merge",), "master": "none"}, "against", "needs Spark"),
    ({"against": ("duckdb",), "workload": "crawl-queue"}, "against", "has no crawl-queue"),
    ({"state_keys": (0,)}, "state-keys", "begin at 1"),
    ({"increment": ()}, "increment", "begin at 1"),
    ({"rounds": 0}, "rounds", "at least 1"),
    ({"age": -1}, "age", "0 or more"),
    ({"hit_rates": (0.1,)}, "hit-rates", "--keys distinct"),
    ({"hit_rates": (0.1, 2.0), "keys": "distinct"}, "hit-rates", "up to 1"),
    ({"grouping": "left"}, "grouping", "inner, outer"),
    ({"soak": True, "against": ("merge",)}, "soak", "leave --against out"),
    ({"soak": True, "increment": (1, 2)}, "soak", "takes one"),
    ({"soak": True, "forms": ("groupwise", "arrow")}, "soak", "takes one"),
    ({"soak": True, "epochs": 1}, "epochs", "at least 2"),
]


@pytest.mark.parametrize(("choice", "option", "why"), REFUSED, ids=lambda v: str(v)[:40])
def test_a_choice_that_cannot_run_is_refused(choice: dict[str, Any], option: str, why: str) -> None:
    """The refusal names the option and says what to give instead."""
    with pytest.raises(BenchRefusedError, match=why) as raised:
        replace(BenchOptions(), **choice).check()
    assert raised.value.details == {"option": option}


def test_a_refusal_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder is made and no Spark started for a run that cannot be."""
    monkeypatch.setattr("controller.bench.run._folder", lambda root: pytest.fail("made a folder"))
    with pytest.raises(BenchRefusedError):
        run_bench(BenchOptions(forms=("cobol",)))


def test_every_peer_can_be_named() -> None:
    """All candidates together are a valid choice."""
    peers = tuple(name for name in CANDIDATES if name != OURS)
    BenchOptions(against=peers).check()


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
    assert replace(base, keys="distinct", age=200).label == "url-count/distinct/age-200"
