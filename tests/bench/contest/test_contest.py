"""Candidates get the same increments, are compared fairly, and must agree in the end."""

from __future__ import annotations

import importlib.metadata
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bench import BenchOptions
from tests.bench.candidates import roster
from tests.bench.candidates.candidate import Figures
from tests.bench.candidates.ours.direct import DirectCandidate
from tests.bench.candidates.peers import duckdb_table
from tests.bench.candidates.peers.duckdb_table import DuckdbTableCandidate
from tests.bench.comparison.result_comparison import Digest, Totals, Values
from tests.bench.contest import entrant
from tests.bench.contest.contest import Contest, differences, steps_of, unequal
from tests.bench.contest.entrant import LocalEntrant
from tests.bench.contest.expected_results import CountTruth
from tests.bench.contest.standing import Standing
from tests.bench.options import GRAPHS
from tests.bench.workloads import graph_workloads
from tests.bench.workloads.crawl_workload import CrawlQueue
from tests.bench.workloads.workload import Arrival


def contest_of(folder: Path, **choices: object) -> tuple[Contest, list[str]]:
    """Give a contest without Spark, and what it announces."""
    options = BenchOptions(
        **{"rounds": (2,), "warmup": (1,), "master": "none", "increment": (30, 60), **choices}  # type: ignore[arg-type]
    )
    announced: list[str] = []
    make = partial(LocalEntrant, options=options, spark=None, slots=2)
    keys = 100 if options.workload in GRAPHS else 300
    return Contest(options, keys, folder, make, announced.append), announced


def counts(contest: Contest) -> dict[str, Totals]:
    """Return the counts that everybody holds."""
    return {name: one for name, one in contest.held.items() if isinstance(one, Totals)}


@pytest.mark.part(every=2)
@pytest.mark.parametrize(
    ("keys", "grouping"),
    [("uniform", "inner"), ("zipf", "inner"), ("zipf", "outer"), ("uniform", "outer")],
)
def test_all_candidates_hold_the_same(tmp_path: Path, keys: str, grouping: str) -> None:
    """Ours, the black box and DuckDB count the same records to the same counts."""
    contest, announced = contest_of(
        tmp_path,
        against=("blackbox", "duckdb-key"),
        keys=keys,
        grouping=grouping,
        rounds=(1,),
        warmup=(1, 0),
    )
    assert contest.run() == []
    assert {t.n for t in counts(contest).values()} == {300 + 2 * 30 + 60}
    assert len(announced) == steps_of(contest.options)


def test_a_view_is_measured_beside_the_output(tmp_path: Path) -> None:
    """The same counts, and in every round the same new ones; in a table instead of a log."""
    contest, _ = contest_of(
        tmp_path, forms=("groupwise", "view"), against=("duckdb-key", "blackbox/view"), warmup=(1,)
    )
    assert contest.run() == []
    assert [(one.candidate, one.form) for one in contest.results[:4]] == [
        ("cbp", "groupwise"),
        ("cbp", "view"),
        ("duckdb-key", "sql"),
        ("blackbox", "view"),
    ]
    assert {t.n for t in counts(contest).values()} == {300 + 3 * 30 + 3 * 60}


def test_hit_rates_measure_the_scan_beside_ours(tmp_path: Path) -> None:
    """The same share of the state for everybody; who scans reads at least as much."""
    contest, announced = contest_of(
        tmp_path, against=("scan",), keys="distinct", hit_rates=(0.01, 1.0), state_keys=(300,)
    )
    assert contest.run() == []
    sizes = [(r.candidate, r.increment_records) for r in contest.results]
    assert sizes == [("cbp", 3), ("scan", 3), ("cbp", 300), ("scan", 300)]
    assert len(announced) == steps_of(contest.options)


def test_an_aged_state_is_measured_when_it_is_old(tmp_path: Path) -> None:
    """Increments of the age are read by all, and measured for none."""
    contest, announced = contest_of(tmp_path, against=("duckdb-key",), age=3, increment=(10,))
    assert contest.run() == []
    assert {t.n for t in counts(contest).values()} == {300 + 6 * 10}
    assert {len(r.seconds_all) for r in contest.results} == {2}
    assert len(announced) == steps_of(contest.options)


def test_results_are_of_the_measured_rounds_alone(tmp_path: Path) -> None:
    """A warm-up is run by everybody, and counted for nobody."""
    contest, _ = contest_of(tmp_path, against=("duckdb-key",))
    contest.run()
    cases = [(r.candidate, r.increment_records) for r in contest.results]
    assert cases == [("cbp", 30), ("duckdb-key", 30), ("cbp", 60), ("duckdb-key", 60)]
    assert {len(r.seconds_all) for r in contest.results} == {2}
    assert all(r.seconds_median > 0 and (r.bytes_written or 0) > 0 for r in contest.results)


def test_who_takes_long_sits_out_and_catches_up(tmp_path: Path) -> None:
    """Fewer rounds are reported; ours runs in all, and at the end all hold the same records."""
    contest, announced = contest_of(
        tmp_path,
        against=("scan", "duckdb-key"),
        rounds=(3, 2),
        warmup=(1, 0),
        candidate_seconds=1e-9,
    )
    assert contest.run() == []
    assert {t.n for t in counts(contest).values()} == {300 + 4 * 30 + 2 * 60}
    rounds = [(r.candidate, r.increment_records, len(r.seconds_all)) for r in contest.results]
    assert rounds == [
        (name, size, times if name == "cbp" else 1)
        for size, times in ((30, 3), (60, 2))
        for name in ("cbp", "scan", "duckdb-key")
    ]
    assert len(announced) < steps_of(contest.options)


def test_who_does_not_catch_up_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To sit out is no way to get around the work."""
    monkeypatch.setattr(Standing, "catch_up", lambda self, folder: self.missed.clear())
    contest, _ = contest_of(
        tmp_path, against=("duckdb-key",), rounds=(3,), keys="zipf", candidate_seconds=1e-9
    )
    (actual,) = contest.run()
    assert actual.startswith("duckdb-key")


@pytest.mark.skipif(
    "url_count_arrow" not in importlib.metadata.entry_points(group="cbp.translators").names,
    reason="this checkout's entry points are not installed: pip install -e .",
)
def test_every_form_is_a_candidate_of_its_own(tmp_path: Path) -> None:
    """Ours in several forms counts alike; results tell them apart by their form."""
    contest, announced = contest_of(tmp_path, forms=("groupwise", "arrow"), increment=(40,))
    assert contest.run() == []
    assert [(r.candidate, r.form) for r in contest.results] == [
        ("cbp", "groupwise"),
        ("cbp", "arrow"),
    ]
    assert list(contest.held) == ["cbp", "cbp/arrow"]
    assert len(announced) == steps_of(contest.options)


def test_each_round_begins_with_another_candidate(tmp_path: Path) -> None:
    """Nobody always runs right after the same other one."""
    contest, announced = contest_of(tmp_path, against=("blackbox", "duckdb-key"), increment=(10,))
    contest.run()
    rounds = [step.partition(":")[0] for step in announced if "records" in step]
    assert rounds[::3] == ["cbp", "blackbox", "duckdb-key"]
    assert all(sorted(rounds[i : i + 3]) == ["blackbox", "cbp", "duckdb-key"] for i in (0, 3, 6))


@pytest.mark.soak
def test_a_dataflow_of_several_stages_is_measured(tmp_path: Path) -> None:
    """The crawl queue runs on ours and on the black box, and their states agree."""
    contest, _ = contest_of(tmp_path, workload="crawl-queue", against=("blackbox",), increment=(5,))
    assert contest.run() == []
    assert len(counts(contest)["cbp"].states) == 3
    keys = {result.state_keys for result in contest.results}
    assert keys == {CrawlQueue(300).loaded_keys}
    assert 100 < max(keys) < 300


@pytest.mark.part(every=4)
@pytest.mark.parametrize(
    ("workload", "variant", "grouping"),
    [
        ("clustering", "plain", "inner"),
        ("clustering", "plain", "outer"),
        ("pagerank", "broadcast", "outer"),
        ("pagerank", "broadcast", "inner"),
    ],
)
def test_a_graph_is_measured_in_every_variant(
    tmp_path: Path, workload: str, variant: str, grouping: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours, its variant and the black box agree page by page; ours updates least."""
    monkeypatch.setattr(graph_workloads, "TOLERANCE", 1e-2)  # a third of the epochs
    options = BenchOptions(
        workload,
        (variant, "blackbox"),
        increment=(3,),
        edges=250,
        threshold=0.2 if workload == "pagerank" else 0.01,
        rounds=(1,),
        warmup=(0,),
        grouping=grouping,
        master="none",
    )
    make = partial(LocalEntrant, options=options, spark=None, slots=2)
    contest = Contest(options, 100, tmp_path, make, lambda _: None)
    assert contest.run() == []
    values = contest.held["cbp"]
    assert isinstance(values, Values)
    assert len(values.of) == 100
    ours, other, blackbox = contest.results
    assert ours.epochs == other.epochs == blackbox.epochs
    assert (ours.share_updated or 0) <= (other.share_updated or 0) < (blackbox.share_updated or 0)
    assert (ours.share_updated or 0) > 0
    if workload == "pagerank" or grouping == "inner":
        assert (ours.bytes_read or 0) < (blackbox.bytes_read or 0)


DIFFERENT = {
    "url-count": ("duckdb-key", "emitted other changes in increment 2"),
    "crawl-queue": ("blackbox", "holds other records in count_in_links.counts"),
    "clustering": ("plain", "from the truth in the mean"),
}
"""Workload to a candidate, and what is said of a wrong one; PageRank is in test_truth.py."""


@pytest.mark.part(every=3)
@pytest.mark.parametrize("planted", ["stale", "empty", "constant"])
@pytest.mark.parametrize("workload", DIFFERENT)
def test_a_wrong_answer_is_found_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workload: str, planted: str
) -> None:
    """Who ignores increments, holds nothing, or always gives one answer, does not win."""
    label, said = DIFFERENT[workload]
    make = roster.candidate_of

    def candidate_of(name: str, *rest: Any) -> Any:
        right = make(name, *rest)
        return Planted(right, planted) if name == label else right

    monkeypatch.setattr(entrant, "candidate_of", candidate_of)
    contest, _ = contest_of(tmp_path, workload=workload, against=(label,), increment=(20,))
    (actual,) = contest.run()
    assert actual.startswith(label)
    assert said in actual or planted == "empty"
    assert actual.endswith(("increment 1", "increment 2")) or "in increment 2:" in actual
    assert contest.results == []


class Planted:
    """A candidate that does the work once, and then gives a wrong answer at no cost."""

    def __init__(self, right: Any, planted: str) -> None:
        self._right, self._planted = right, planted
        self._runs = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._right, name)

    def run(self, arrival: Arrival) -> Figures:
        """Do the work only once."""
        self._runs += 1
        return self._right.run(arrival) if self._runs == 1 else Figures()

    def emitted(self) -> Any:
        """Give what the first increment changed, or nothing."""
        actual = self._right.emitted()
        return actual if actual is None or self._planted != "empty" or self._runs == 1 else []

    def held(self) -> Any:
        """Give the answer after the first increment, none, or one for every page."""
        held = self._right.held()
        if self._planted == "empty":
            return Totals({}) if isinstance(held, Totals) else Values({})
        constant = self._planted == "constant" and isinstance(held, Values)
        return Values(dict.fromkeys(held.of, 1.0)) if constant else held


def test_who_ignores_one_increment_of_many_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound is below what a stale answer gives, also where all others were read."""
    run, runs = DirectCandidate.run, 0

    def lazy(self: DirectCandidate, arrival: Arrival) -> Figures:
        nonlocal runs
        runs += self.name == "plain"
        return Figures() if self.name == "plain" and runs == 4 else run(self, arrival)

    monkeypatch.setattr(DirectCandidate, "run", lazy)
    choices: dict[str, Any] = {"increment": (9,), "rounds": (3,), "edges": 250}
    contest, _ = contest_of(tmp_path, workload="clustering", against=("plain",), **choices)
    (actual,) = contest.run()
    assert actual.startswith("plain")
    assert actual.endswith("increment 4")


def test_a_candidate_that_loses_records_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fast candidate that does not do the work does not win."""
    run = DirectCandidate.run

    def lazy(self: DirectCandidate, arrival: Arrival) -> Figures:
        return run(self, arrival) if self.name == "cbp" else Figures()

    monkeypatch.setattr(DirectCandidate, "run", lazy)
    contest, _ = contest_of(tmp_path, against=("blackbox",))
    actual = contest.run()
    (said,) = actual
    assert said.startswith("blackbox emitted other changes in increment 1: 0 keys and 0, not ")


def test_counts_at_other_keys_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same keys and the same sum are not enough: counts belong to their keys."""
    first = duckdb_table.INITIAL.replace("1::BIGINT", "(id % 3)::BIGINT")
    monkeypatch.setattr(duckdb_table, "INITIAL", first)
    monkeypatch.setattr(Contest, "_emitted_wrong", lambda *_: [])
    contest, _ = contest_of(tmp_path, against=("duckdb-key",))
    (actual,) = contest.run()
    assert {(one.keys, one.n) for one in counts(contest).values()} == {
        (counts(contest)["cbp"].keys, 570)
    }
    assert actual.startswith("duckdb-key holds other records in count.counts")


@pytest.mark.soak
def test_emitted_changes_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate that holds the right counts but reports wrong ones is found."""
    run = DuckdbTableCandidate.run

    def late(self: DuckdbTableCandidate, arrival: Arrival) -> Figures:
        figures = run(self, arrival)
        files = sorted(self._folder.glob("changes/*.parquet"))
        if len(files) == 6:
            files[0].replace(files[-1])
        return figures

    monkeypatch.setattr(DuckdbTableCandidate, "run", late)
    monkeypatch.setattr(Contest, "_emitted_wrong", lambda *_: [])
    contest, _ = contest_of(tmp_path, against=("blackbox", "duckdb-key"), keys="zipf")
    assert contest.run() == ["duckdb-key emitted other last values in count.totals"]


def test_the_same_dataflow_gives_the_same_values() -> None:
    """A form that is near the truth but differs from ours is reported."""
    ours = Values({0: 1.0, 1: 2.0})
    assert unequal(Values({0: 1.0, 1: 2.0 + 1e-9}), ours) == ""
    assert "0.001 from cbp" in unequal(Values({0: 1.0, 1: 2.001}), ours)


def test_only_equal_beginnings_are_compared_key_by_key() -> None:
    """A candidate that began with fewer keys must count right, but holds fewer."""

    def totals(rows: int, n: int, hashes: int) -> Totals:
        return Totals({"count.counts": Digest(rows, n, hashes)})

    held = {
        "cbp": totals(10, 15, 1),
        "half": totals(5, 10, 2),
        "fewer": totals(9, 15, 3),
        "other": totals(10, 15, 4),
    }
    loaded = {"cbp": 10, "half": 5, "fewer": 10, "other": 10}
    truths = {name: Counts(keys, keys + 5) for name, keys in loaded.items()}
    assert differences(held, loaded, truths) == [
        "fewer counts 15 records of 9 keys, not 15 of 10",
        "other holds other records in count.counts: 10 keys and 15, cbp 10 and 15",
    ]


class Counts(CountTruth):
    """A truth of so many keys and records."""

    def __init__(self, keys: int, n: int) -> None:
        self._counts = np.ones(keys, np.int64)
        self._counts[0] += n - keys
