"""Spark runs a slow task a second time, on another machine; its work counts once.

A real standalone cluster of two workers, which Spark takes for two machines: it never runs
a twin on the machine of the first attempt.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fresh import REPOSITORY, run_fresh
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class SlowOnce:
    """The first task that has written a file waits until another one has written the same.

    Attributes:
        folder: Every passage leaves a file here, over all processes.
    """

    point: str
    folder: str

    def __call__(self, point: str) -> None:
        if point != self.point:
            return
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            return
        passages = Path(self.folder)
        (passages / f"{context.partitionId()}-{context.taskAttemptId()}").touch()
        try:
            os.close(os.open(passages / "slow", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        until(lambda: len(list(passages.glob(f"{context.partitionId()}-*"))) >= 2)
        # The twin may still lose: Spark decides who was first.


def run_speculated(folder: Path) -> None:
    """Run what a fresh process does: see the test."""
    from cbp.engine.direct import DirectEngine
    from cbp.engine.spark import SparkExecutor, SparkSettings, start_session
    from cbp.engine.storage.engine_limits import EngineLimits
    from tests.cbp.engine.epochs import assert_same, dataflow_of
    from tests.driver import Driver
    from tests.spark.killed_workers import lost_attempts
    from tests.spark.spark_epochs import epochs_of
    from tests.system.processes import SparkCluster

    cluster = SparkCluster(folder, cores=1, hosts=("127.0.0.1", "127.0.0.2"))
    os.environ |= cluster.environment
    try:
        settings = SparkSettings(
            master=cluster.url,
            conf={
                "spark.executor.memory": "512m",
                "spark.executorEnv.PYTHONPATH": str(REPOSITORY),
                "spark.speculation": "true",
                "spark.speculation.quantile": "0.5",
                "spark.speculation.multiplier": "1.01",
                # Of a single task there is no median to exceed.
                "spark.speculation.task.duration.threshold": "500ms",
                # A second attempt is a twin, not a retry.
                "spark.task.maxFailures": "1",
            },
        )
        spark = start_session(settings)
        for number, shuffled_above in enumerate((50_000, 0)):
            own = folder / str(number)
            own.mkdir()
            engine = DirectEngine(
                SparkExecutor(spark),
                cache=str(own / "cache"),
                limits=EngineLimits(arranged_reads=shuffled_above),
            )
            dataflow = dataflow_of("members")
            driver = Driver(engine, dataflow, own / "t")
            engine.preparer.faults = SlowOnce("data_file.after", str(own))
            assert_same(dataflow, driver, epochs_of("members", seed=number, records=60)[:2])
            assert (own / "slow").exists()
            assert len(lost_attempts(driver, own / "t")) == 1
        spark.stop()
    finally:
        cluster.close()
    print("equal")


@pytest.mark.soak
def test_a_task_that_ran_twice_counts_once(tmp_path: Path) -> None:
    """Results equal the reference; the files of one of both attempts are named by nobody."""
    run_fresh("tests.spark.test_speculation", tmp_path)


if __name__ == "__main__":
    from tests.spark import test_speculation  # workers know the classes by this name

    test_speculation.run_speculated(Path(sys.argv[1]))
