"""A benchmark from start to end, without Spark and with it."""

from __future__ import annotations

import io
import json
import signal
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from tests.bench import BenchDisagreesError, BenchOptions, run_bench
from tests.bench.candidates.ours.engine_driver import DataflowDrive, StageRun
from tests.bench.candidates.peers.streaming import tws_runs
from tests.bench.contest.contest import Contest
from tests.bench.options import CANDIDATES, OURS, PAPER, VARIANTS
from tests.bench.workloads import graph_workloads

TINY = BenchOptions(
    against=("blackbox", "duckdb-key"),
    state_keys=(1000,),
    increment=(100,),
    rounds=(1,),
    warmup=(0,),
    master="none",
    isolated=False,
)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the folder in which temporary ones are made."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def run(options: BenchOptions, spark: Any = None) -> tuple[Sequence[Any], str]:
    """Run a benchmark; return its results and what it printed."""
    stream = io.StringIO()
    results = run_bench(options, console=Console(file=stream, width=200), spark=spark)
    return results, stream.getvalue()


@pytest.mark.soak
def test_results_are_printed_written_and_drawn(tmp_path: Path, temporary: Path) -> None:
    """One run leaves a table, a document and a picture, and no other file."""
    target, picture = tmp_path / "out.json", tmp_path / "out.png"
    options = replace(TINY, state_keys=(500, 1000), json_file=target, picture=picture)
    results, printed = run(options)
    assert len(results) == 6
    written = json.loads(target.read_text())["results"]
    assert [(r["candidate"], r["state_keys"]) for r in written[:2]] == [
        ("cbp", 500),
        ("blackbox", 500),
    ]
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "hold the same" in printed
    assert "of which task" in printed
    assert list(temporary.iterdir()) == []


def test_a_disagreement_fails_and_still_leaves_the_results(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was measured can be looked at when it turns out to be wrong."""
    monkeypatch.setattr(Contest, "run", _disagreeing(Contest.run))
    target = tmp_path / "out.json"
    with pytest.raises(BenchDisagreesError, match="duckdb lost one"):
        run(replace(TINY, json_file=target))
    assert len(json.loads(target.read_text())["results"]) == 3
    assert list(temporary.iterdir()) == []


def test_a_terminated_run_leaves_nothing(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`kill` and time limits do not fill the disk; the status says which signal it was."""
    monkeypatch.setattr(Contest, "run", lambda self: signal.raise_signal(signal.SIGTERM))
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        run(TINY)
    assert ended.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before
    assert list(temporary.iterdir()) == []


def test_a_chosen_root_keeps_the_tables(tmp_path: Path) -> None:
    """`--root` lets people look into what was measured."""
    run(replace(TINY, against=(), root=tmp_path / "kept"))
    assert list(tmp_path.glob("kept/*/keys-1000/cbp/tables/state/count.counts/_delta_log/*.json"))


def test_a_soak_says_how_a_table_ages(tmp_path: Path, temporary: Path) -> None:
    """The first and the last epochs are compared, and what is left is counted."""
    target = tmp_path / "soak.json"
    options = replace(TINY, against=(), soak=True, epochs=6, json_file=target)
    results, printed = run(options)
    actual = json.loads(target.read_text())["soak"]
    assert results == []
    assert (actual["epochs"], actual["share"], actual["increment_records"]) == (6, 3, 100)
    assert actual["ratio"] == pytest.approx(actual["seconds_last"] / actual["seconds_first"])
    assert actual["log_entries"] >= 2 * 8
    assert actual["state_files"] >= 8
    assert actual["bytes_changed"] > 100 * 8
    assert actual["bytes_written"] == pytest.approx(sum(actual["bytes_by_kind"].values()))
    assert "bytes per changed" in printed
    assert list(temporary.iterdir()) == []


def test_a_soak_does_not_measure_its_first_epoch(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Making index copies and starting workers is no part of a table's age."""
    target, now = tmp_path / "soak.json", 0.0
    run_until_idle = DataflowDrive.run_until_idle
    runs = 0

    def slow_at_first(self: DataflowDrive) -> list[StageRun]:
        nonlocal now, runs
        now += 1.0 if runs else 1000.0
        runs += 1
        return run_until_idle(self)

    monkeypatch.setattr(DataflowDrive, "run_until_idle", slow_at_first)
    monkeypatch.setattr(
        "tests.bench.soak.engine_soak.time",
        SimpleNamespace(perf_counter=lambda: now, process_time=lambda: now / 2),
    )
    run(replace(TINY, against=(), soak=True, epochs=3, json_file=target))
    actual = json.loads(target.read_text())["soak"]
    assert (runs, actual["share"]) == (4, 1)
    assert actual["seconds_first"] == actual["seconds_last"] == actual["ratio"] == 1.0
    assert actual["cpu_first"] == actual["cpu_last"] == 0.5
    assert actual["cpu_ratio"] == 1.0


def test_epochs_write_little_more_than_what_changed(tmp_path: Path, temporary: Path) -> None:
    """Logs and compaction included; and the vectors once per publication."""
    written = {}
    for epochs in (1, 8):
        target = tmp_path / f"soak-{epochs}.json"
        options = replace(
            TINY,
            against=(),
            soak=True,
            epochs=16,
            state_keys=(50_000,),
            increment=(1_000,),
            publish_epochs=epochs,
            json_file=target,
        )
        run(options)
        written[epochs] = json.loads(target.read_text())["soak"]
    assert written[1]["bytes_per_changed"] <= 2  # the goal is 5, for far larger increments
    assert written[8]["bytes_per_changed"] < written[1]["bytes_per_changed"]
    assert written[8]["bytes_by_kind"]["vectors"] < written[1]["bytes_by_kind"]["vectors"] / 4
    assert written[8]["bytes_by_kind"]["state"] == written[1]["bytes_by_kind"]["state"]


def test_results_are_written_behind_every_round(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who ends a long benchmark keeps what was measured, and reads that it is not all."""
    target, begun = tmp_path / "out.json", Contest._round
    rounds = 0

    def ended(self: Contest, *rest: Any, **more: Any) -> float | None:
        nonlocal rounds
        rounds += 1
        if rounds == 4:
            signal.raise_signal(signal.SIGTERM)
        return begun(self, *rest, **more)

    options = replace(TINY, against=("duckdb-key",), rounds=(9,), warmup=(1,), json_file=target)
    with monkeypatch.context() as patch:
        patch.setattr(Contest, "_round", ended)
        with pytest.raises(SystemExit):
            run(options)
    actual = json.loads(target.read_text())
    assert actual["complete"] is False
    measured = [(one["candidate"], len(one["seconds_all"])) for one in actual["results"]]
    assert measured == [("cbp", 2), ("duckdb-key", 2)]
    assert list(temporary.iterdir()) == []
    run(replace(options, rounds=(1,)))
    assert json.loads(target.read_text())["complete"] is True


def test_a_late_benchmark_begins_no_further_round(tmp_path: Path, temporary: Path) -> None:
    """One round of the first size is measured and compared; the other sizes are left out."""
    target = tmp_path / "out.json"
    options = replace(TINY, increment=(100, 200), rounds=(5,), minutes=1e-9, json_file=target)
    results, printed = run(options)
    assert [(one.increment_records, len(one.seconds_all)) for one in results] == [(100, 1)] * 3
    assert "hold the same" in printed
    assert json.loads(target.read_text())["complete"] is True


_READERS = ("duckdb-key", "duckdb-update", "duckdb-parquet", "polars")
"""Candidates without Spark that tell what they read."""


def assert_agree(spark: Any, peers: Sequence[str]) -> None:
    """Run peers on Spark beside ours, and look at everybody's figures."""
    results, _ = run(replace(TINY, against=tuple(peers), master="local[2]"), spark)
    assert [r.candidate for r in results] == [OURS, *peers]
    for one in results:
        assert one.floor_seconds is not None
        assert one.bytes_written, one.candidate
    read = {r.candidate: r.bytes_read for r in results}
    known = (OURS, "blackbox", "scan", "jobs", *_READERS, "recompute")
    assert [n for n, size in read.items() if size] == [n for n in read if n in known]
    shuffled = {r.candidate: r.bytes_shuffled for r in results}
    assert shuffled[OURS] == 0
    if "blackbox" in peers:
        assert (read["blackbox"] or 0) > 1000 * 8
        assert (shuffled["blackbox"] or 0) > 10_000


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_usual_candidates_agree(spark: Any, temporary: Path) -> None:
    """Peers on Spark hold what ours holds, and have figures; the black box: on a graph, below."""
    assert_agree(spark, ("merge-vectors", "rewrite", "streaming", "polars"))


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("workload", ["clustering", "pagerank"])
def test_everybody_gives_a_graph_the_same_values(
    spark: Any, temporary: Path, tmp_path: Path, workload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Spark too: the black box those of ours, from scratch within its bound."""
    target, picture = tmp_path / "out.json", tmp_path / "out.png"
    # The black box with its copies per receiver, and with one copy of ALL per task.
    rewriting = {"clustering": "blackbox", "pagerank": "paper-a"}[workload]
    peers = (rewriting, "recompute", "scratch", "warm")
    monkeypatch.setattr(graph_workloads, "TOLERANCE", 1e-3)  # a third of the epochs
    options = replace(
        TINY,
        workload=workload,
        against=peers,
        state_keys=(100,),
        increment=(5,),
        edges=250,
        threshold=0.1 if workload == "pagerank" else TINY.threshold,
        master="local[2]",
        json_file=target,
        picture=picture,
    )
    results, printed = run(options, spark)
    by_name = {one.candidate: one for one in results}
    assert list(by_name) == [OURS, *peers]
    assert "hold the same" in printed
    assert picture.read_bytes().startswith(b"\x89PNG")
    (first, *_) = json.loads(target.read_text())["results"]
    assert first["epochs"] > 1
    assert first["state_updated"] > 0
    assert by_name[OURS].bytes_shuffled == 0
    assert (by_name[rewriting].bytes_shuffled or 0) > 10_000
    assert (by_name[OURS].bytes_broadcast or 0) > 0
    assert rewriting == "paper-a" or by_name[rewriting].bytes_broadcast == 0
    assert (by_name["recompute"].bytes_shuffled or 0) > 0


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.timeout(900)
def test_every_candidate_agrees(spark: Any, temporary: Path) -> None:
    """All peers, those in streaming Python too, each of whose keys costs a call.

    The one that needs a package of the `bench` extra takes part where that is installed.
    """
    left_out = () if tws_runs() else ("streaming-python-tws",)
    others = (OURS, *VARIANTS, *PAPER, "service", "scratch", "warm", *left_out)
    assert_agree(spark, [n for n in CANDIDATES if n not in others])


def _disagreeing(run_: Any) -> Any:
    def disagree(self: Contest) -> list[str]:
        return [*run_(self), "duckdb lost one"]

    return disagree
