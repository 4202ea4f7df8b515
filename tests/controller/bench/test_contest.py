"""Candidates get the same increments, are compared fairly, and must agree in the end."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from controller.bench import BenchOptions
from controller.bench.candidate import Figures
from controller.bench.candidates import upsert
from controller.bench.candidates.direct import DirectCandidate
from controller.bench.candidates.upsert import UpsertCandidate
from controller.bench.contest import Contest, differences, steps_of
from controller.bench.crawl_workload import CrawlQueue
from controller.bench.held import Digest, Totals, Values
from controller.bench.workload import Arrival


def contest_of(folder: Path, **choices: object) -> tuple[Contest, list[str]]:
    """Give a contest without Spark, and what it announces."""
    options = BenchOptions(
        **{"rounds": 2, "warmup": 1, "master": "none", "increment": (30, 60), **choices}  # type: ignore[arg-type]
    )
    announced: list[str] = []
    return Contest(options, 300, folder, None, 2, announced.append), announced


def counts(contest: Contest) -> dict[str, Totals]:
    """Return the counts that everybody holds."""
    return {name: one for name, one in contest.held.items() if isinstance(one, Totals)}


@pytest.mark.parametrize("keys", ["uniform", "zipf"])
@pytest.mark.parametrize("grouping", ["inner", "outer"])
def test_all_candidates_hold_the_same(tmp_path: Path, keys: str, grouping: str) -> None:
    """Ours, the black box and DuckDB count the same records to the same counts."""
    contest, announced = contest_of(
        tmp_path, against=("blackbox", "duckdb"), keys=keys, grouping=grouping
    )
    assert contest.run() == []
    assert {t.n for t in counts(contest).values()} == {300 + 3 * 30 + 3 * 60}
    assert len(announced) == steps_of(contest.options)


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
    contest, announced = contest_of(tmp_path, against=("duckdb",), age=3, increment=(10,))
    assert contest.run() == []
    assert {t.n for t in counts(contest).values()} == {300 + 6 * 10}
    assert {len(r.seconds_all) for r in contest.results} == {2}
    assert len(announced) == steps_of(contest.options)


def test_results_are_of_the_measured_rounds_alone(tmp_path: Path) -> None:
    """A warm-up is run by everybody, and counted for nobody."""
    contest, _ = contest_of(tmp_path, against=("duckdb",))
    contest.run()
    cases = [(r.candidate, r.increment_records) for r in contest.results]
    assert cases == [("cbp", 30), ("duckdb", 30), ("cbp", 60), ("duckdb", 60)]
    assert {len(r.seconds_all) for r in contest.results} == {2}
    assert all(r.seconds_median > 0 and (r.bytes_written or 0) > 0 for r in contest.results)


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
    contest, announced = contest_of(tmp_path, against=("blackbox", "duckdb"), increment=(10,))
    contest.run()
    rounds = [step.partition(":")[0] for step in announced if "records" in step]
    assert rounds[::3] == ["cbp", "blackbox", "duckdb"]
    assert all(sorted(rounds[i : i + 3]) == ["blackbox", "cbp", "duckdb"] for i in (0, 3, 6))


def test_a_dataflow_of_several_stages_is_measured(tmp_path: Path) -> None:
    """The crawl queue runs on ours and on the black box, and their states agree."""
    contest, _ = contest_of(tmp_path, workload="crawl-queue", against=("blackbox",), increment=(5,))
    assert contest.run() == []
    assert len(counts(contest)["cbp"].states) == 2
    keys = {result.state_keys for result in contest.results}
    assert keys == {CrawlQueue(300).loaded_keys}
    assert 100 < max(keys) < 300


@pytest.mark.parametrize("grouping", ["inner", "outer"])
@pytest.mark.parametrize(
    ("workload", "variant"), [("clustering", "plain"), ("pagerank", "broadcast")]
)
def test_a_graph_is_measured_in_every_variant(
    tmp_path: Path, workload: str, variant: str, grouping: str
) -> None:
    """Ours, its variant and the black box agree page by page; ours updates least."""
    options = BenchOptions(
        workload,
        (variant, "blackbox"),
        increment=(3,),
        edges=250,
        threshold=0.2 if workload == "pagerank" else 0.01,
        rounds=1,
        warmup=0,
        grouping=grouping,
        master="none",
    )
    contest = Contest(options, 100, tmp_path, None, 2, lambda _: None)
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


def test_a_graph_of_another_answer_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values are compared, not only counted."""
    run = DirectCandidate.run

    def lazy(self: DirectCandidate, arrival: Arrival) -> Figures:
        return run(self, arrival) if self.name == "cbp" else Figures()

    monkeypatch.setattr(DirectCandidate, "run", lazy)
    contest, _ = contest_of(tmp_path, workload="clustering", against=("plain",), increment=(20,))
    (found,) = contest.run()
    assert "plain is " in found


def test_a_candidate_that_loses_records_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fast candidate that does not do the work does not win."""
    run = DirectCandidate.run

    def lazy(self: DirectCandidate, arrival: Arrival) -> Figures:
        return run(self, arrival) if self.name == "cbp" else Figures()

    monkeypatch.setattr(DirectCandidate, "run", lazy)
    contest, _ = contest_of(tmp_path, against=("blackbox",))
    found = contest.run()
    assert found[0] == "blackbox counts 300 records, not 570"


def test_counts_at_other_keys_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same keys and the same sum are not enough: counts belong to their keys."""
    monkeypatch.setattr(upsert, "_INITIAL", upsert._INITIAL.replace(", 1\n", ", id % 3\n"))
    contest, _ = contest_of(tmp_path, against=("duckdb",))
    (found,) = contest.run()
    assert {(one.keys, one.n) for one in counts(contest).values()} == {
        (counts(contest)["cbp"].keys, 570)
    }
    assert found.startswith("duckdb holds other records in count.counts")


def test_emitted_changes_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who holds the right counts, and tells wrong ones, is found."""
    run = UpsertCandidate.run

    def late(self: UpsertCandidate, arrival: Arrival) -> Figures:
        figures = run(self, arrival)
        first, *_ = sorted(self._place.folder.glob("totals-*.parquet"))
        first.rename(first.with_name("totals-999999.parquet"))
        return figures

    monkeypatch.setattr(UpsertCandidate, "run", late)
    contest, _ = contest_of(tmp_path, against=("blackbox", "duckdb"), keys="zipf")
    assert contest.run() == ["duckdb emitted other last values in count.totals"]


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
    found = differences(held, loaded, counted=5, within=dict.fromkeys(held, 0.0))
    assert found == [
        "fewer holds other records in count.counts: 9 keys and 15, cbp 10 and 15",
        "other holds other records in count.counts: 10 keys and 15, cbp 10 and 15",
    ]
