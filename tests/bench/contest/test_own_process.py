"""A candidate in a process of its own gives what it gives here, and its end is reported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench import BenchFailedError, BenchOptions
from tests.bench.comparison.result_comparison import Totals
from tests.bench.contest.expected_results import CountTruth
from tests.bench.contest.own_process import OwnProcess
from tests.bench.measurements.cpu_time import cpu_seconds
from tests.bench.workloads.workload import UrlCount, write_arrival

pytest.importorskip("duckdb")


@pytest.mark.soak
def test_a_process_of_its_own_answers_and_its_death_is_told(tmp_path: Path) -> None:
    """Records go there as files, digests come back; who asks a dead one gets a coded error."""
    workload, options = UrlCount(100, 1), BenchOptions(master="none")
    truth = CountTruth(workload, 100)
    entrant = OwnProcess("duckdb-update", workload, tmp_path / "own", options=options)
    try:
        assert (entrant.name, entrant.form) == ("duckdb-update", "sql")
        entrant.load(100)
        for number in range(2):
            truth.take(number, 50, before=50 * number)
            records = workload.records(number, 50, before=0)
            sample = entrant.run(write_arrival(records, tmp_path / f"{number}.parquet"))
            assert sample.seconds > 0
            assert entrant.emitted() == truth.emitted()
        held = entrant.held()
        assert isinstance(held, Totals)
        assert truth.unlike("duckdb-update", held) == ""
        entrant._process.kill()
        with pytest.raises(BenchFailedError) as raised:
            entrant.run(write_arrival(records, tmp_path / "lost.parquet"))
        assert raised.value.details["candidate"] == "duckdb-update"
        assert "SIGKILL" in raised.value.message, "what ended it, not a negative number"
    finally:
        entrant.close()
    assert not entrant._process.is_alive()


@pytest.mark.soak
def test_what_a_candidate_raises_is_told_with_its_place(tmp_path: Path) -> None:
    """A file that is not there fails the run, not the process that asked."""
    options = BenchOptions(master="none")
    entrant = OwnProcess("polars", UrlCount(100, 1), tmp_path / "own", options=options)
    try:
        with pytest.raises(BenchFailedError, match=r"(?s)Traceback.*run"):
            entrant.run(write_arrival(UrlCount(100, 1).records(0, 5, before=0), tmp_path / "a"))
    finally:
        entrant.close()


def test_processor_seconds_of_children_count() -> None:
    """Also when they have ended: what a candidate starts is its own cost."""
    before = cpu_seconds()
    if before is None:
        pytest.skip("no /proc")
    busy = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    subprocess.run([sys.executable, "-c", busy], check=True)
    after = cpu_seconds()
    assert after is not None
    assert after - before > 0.2  # both are counted in ticks
