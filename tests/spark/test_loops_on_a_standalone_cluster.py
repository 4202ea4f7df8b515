"""Loops in several tasks on a standalone cluster: a master, and two workers with a slot each.

So both tasks of a loop are needed to fill the cluster, and each is in an executor of its own, as on
two machines. A process of its own, because a session's master cannot be changed; by `-m soak`,
since five JVMs are started for it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from cbp.model.run.account import ways
from tests.cbp.engine.epochs import assert_same
from tests.driver import Driver
from tests.fresh import REPOSITORY, run_fresh
from tests.limited import with_limits
from tests.spark.test_loops_on_spark import CASES

pytestmark = [
    pytest.mark.spark,
    pytest.mark.cluster,
    pytest.mark.soak,
    pytest.mark.timeout(900),
]

PLAYED = {"delta": 3, "bulk": 3, "columns": 3, "nested": 3}
"""Cases, with the seed of their epochs; edges of `delta` come and go."""


def run_on_cluster(folder: Path) -> None:
    """Run what a fresh process does: see the test."""
    from cbp.engine.spark import SparkEngine, SparkSettings
    from cbp.engine.storage.engine_limits import EngineLimits
    from tests.system.processes import SparkCluster, until

    cluster = SparkCluster(folder, cores=1, hosts=("127.0.0.1", "127.0.0.2"))
    os.environ |= cluster.environment
    try:
        conf = {
            "spark.executor.memory": "512m",
            "spark.executorEnv.PYTHONPATH": str(REPOSITORY),
        }
        settings = SparkSettings(master=cluster.url, loop_tasks_max=2, conf=conf)
        limits = EngineLimits(rows_per_loop_task=2)
        engine = SparkEngine(settings, cache=str(folder / "cache"), limits=limits)
        until(lambda: len(cluster.executors()) == 2, "a cluster of two executors did not come")
        shuffling = with_limits(engine, EngineLimits(rows_per_loop_task=2, arranged_reads=0))
        for case, seed in PLAYED.items():
            make, epochs, source = CASES[case]
            for name, one in (("arranged", engine), ("shuffled", shuffling)):
                until(lambda: engine._executor.loop_slots() == 2, "slots are not free")
                driver = Driver(one, make(), folder / f"{case}-{name}")
                assert_same(make(), driver, epochs(seed), source=source)
                loops = [run for run in driver.figures if "supersteps" in run]
                assert loops[0]["tasks"] == 2, loops
                assert "in 2 tasks that exchanged their messages" in ways(loops[0])
        engine.close()
        until(lambda: not cluster.executors(), "an executor outlives its application")
        assert not cluster.python_workers()
    finally:
        cluster.close()
    print("equal")


def test_every_epoch_equals_the_reference(tmp_path: Path) -> None:
    """In one barrier stage over both executors, whichever way the records came.

    Edges come and go. Once the application has ended, no process of it is left.
    """
    run_fresh("tests.spark.test_loops_on_a_standalone_cluster", tmp_path)


if __name__ == "__main__":
    from tests.spark import test_loops_on_a_standalone_cluster as own  # workers know its name

    own.run_on_cluster(Path(sys.argv[1]))
