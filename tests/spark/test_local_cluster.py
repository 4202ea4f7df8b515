"""The same flows on a cluster of two executor processes, shuffled.

On `local[n]` the records of a group arrive in one order by luck; on a cluster they come
from several map tasks in any order. A process of its own, because a session's master
cannot be changed. `CBP_CLUSTER_RUNS` repeats the run (once by default).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fresh import REPOSITORY, run_fresh

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(900)]


def run_on_cluster(folder: Path, runs: int) -> None:
    """Run what a fresh process does: see the test."""
    from cbp.engine.spark import SparkEngine, SparkSettings, executor
    from tests.cbp.engine.test_direct import assert_same, dataflow_of
    from tests.driver import Driver
    from tests.spark.test_spark_engine import epochs_of

    settings = SparkSettings(
        master="local-cluster[2,1,1024]",
        conf={
            "spark.executor.memory": "1g",
            "spark.executorEnv.PYTHONPATH": str(REPOSITORY),
            # Several map tasks per flow, so that their order is not the files' order.
            "spark.sql.files.maxPartitionBytes": "2000",
            "spark.sql.files.openCostInBytes": "0",
            # On a busy machine a task takes longer than the product would wait.
            "spark.locality.wait": "30s",
        },
    )
    engine = SparkEngine(settings, cache=str(folder / "cache"))
    for run in range(runs):
        for shuffled_above in (0, 50_000):
            executor.ARRANGED_READS_MAX = shuffled_above
            for case in ("sequences", "members", "split"):
                dataflow = dataflow_of(case)
                driver = Driver(engine, dataflow, folder / f"{case}-{run}-{shuffled_above}")
                assert_same(dataflow, driver, epochs_of(case, seed=run, records=200))
        assert_tasks_read_their_messages(engine, folder / f"letters-{run}", run)
    assert_tasks_come_back(engine)
    engine.close()
    print("equal")


def assert_tasks_read_their_messages(engine: Any, folder: Path, seed: int) -> None:
    """Messages that lie by bucket are read in place by both executors, in the reference's order."""
    from cbp.engine import planning
    from cbp.engine.spark import executor
    from tests.cbp.engine.test_direct import assert_same
    from tests.cbp.engine.test_mail import letters, many
    from tests.driver import Driver

    before, executor.ARRANGED_READS_MAX = executor.ARRANGED_READS_MAX, 0
    rows, planning.ROWS_PER_TASK = planning.ROWS_PER_TASK, {"groupwise": 10}
    least, planning.MESSAGES_MIN = planning.MESSAGES_MIN, 1
    try:
        driver = Driver(engine, letters(), folder)
        assert_same(letters(), driver, [{"items": many(seed), "notes": []}])
        assert any(run.get("messages_remote") for run in driver.figures)
        assert driver.figures[1]["tasks"] > 1
    finally:
        executor.ARRANGED_READS_MAX = before
        planning.ROWS_PER_TASK, planning.MESSAGES_MIN = rows, least


def assert_tasks_come_back(engine: Any) -> None:
    """Of 20 jobs, every task runs where it ran before, and both executors have work."""
    executor = engine._executor
    seen = set()
    for tasks in (4, 2) * 10:
        where = tuple(int(number) for number in executor._run_numbered(tasks, _executor_process))
        seen.add((tasks, where))
    assert len(seen) == 2, seen
    for tasks, where in seen:
        assert len(set(where)) == 2, seen
        assert list(where) == [where[0]] * (tasks // 2) + [where[-1]] * (tasks // 2), seen


def _executor_process() -> list[str]:
    return [str(os.getppid())]


def test_results_and_order_equal_the_reference(tmp_path: Path) -> None:
    """Two executors that share only the folder give the reference's results, in its order.

    Tasks come back to the executor that has their index copies.
    """
    runs = os.environ.get("CBP_CLUSTER_RUNS", "1")
    run_fresh("tests.spark.test_local_cluster", tmp_path, runs)


if __name__ == "__main__":
    from tests.spark import test_local_cluster  # workers know its functions by this name

    test_local_cluster.run_on_cluster(Path(sys.argv[1]), int(sys.argv[2]))
