"""Python workers of real Spark tasks, killed by SIGKILL at the files that they write.

A process of its own, because tasks are tried again only on `local[n,tries]`, and a
session's master cannot be changed. `CBP_WORKER_KILLS` is the number of points (2 by default).

A worker that is killed between writing and returning is tried again, and its files are named by
nobody.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.driver import Driver
from tests.fresh import run_fresh
from tests.spark.killed_workers import KillOnce, lost_attempts

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

POINTS = [
    ("data_sync.after", 0),
    ("data_file.after", 50_000),
    ("data_file.after", 0),
    ("data_sync.after", 50_000),
]


def run_killed(folder: Path, kills: int) -> None:
    """Run what a fresh process does: see the test."""
    from cbp.engine.direct import DirectEngine
    from cbp.engine.spark import SparkExecutor, SparkSettings, start_session
    from cbp.engine.storage.engine_limits import EngineLimits
    from tests.cbp.engine.epochs import assert_same, dataflow_of
    from tests.spark.spark_epochs import epochs_of

    spark = start_session(SparkSettings(master="local[2,4]"))
    for number, (point, shuffled_above) in enumerate(POINTS[:kills]):
        own = folder / str(number)
        own.mkdir()
        faults = KillOnce(point, str(own / "struck"))
        engine = DirectEngine(
            SparkExecutor(spark),
            cache=str(own / "cache"),
            limits=EngineLimits(arranged_reads=shuffled_above),
        )
        dataflow = dataflow_of("members")
        driver = Driver(engine, dataflow, own / "t")
        engine.preparer.faults = faults
        assert_same(dataflow, driver, epochs_of("members", seed=number, records=60)[:2])
        assert (own / "struck").exists(), point
        attempts = lost_attempts(driver, own / "t")
        assert len(attempts) == 1, f"{point}: one attempt was lost, not {attempts}"
    spark.stop()
    print("equal")


@pytest.mark.soak
def test_a_killed_worker_is_tried_again_and_counts_once(tmp_path: Path) -> None:
    """Killed between writing and returning: one result, and nobody names the dead one's files."""
    run_fresh("tests.spark.test_worker_faults", tmp_path, os.environ.get("CBP_WORKER_KILLS", "1"))


if __name__ == "__main__":
    from tests.spark import test_worker_faults  # workers know the classes by this name

    test_worker_faults.run_killed(Path(sys.argv[1]), int(sys.argv[2]))
