"""A run that hangs in every slot of a standalone cluster gives way there, too.

Its tasks are stopped on executors that no driver can signal, and the narrow place is half of the
slots of other processes. By `-m soak`: it waits for Spark to notice that nobody frees a slot.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.fresh import REPOSITORY, run_fresh

pytestmark = [
    pytest.mark.spark,
    pytest.mark.cluster,
    pytest.mark.soak,
    pytest.mark.timeout(900),
]


def run_on_cluster(folder: Path) -> None:
    """Run what a fresh process does: see the test."""
    from cbp.engine.spark import SparkSettings, start_session
    from tests.spark.hanging_runs import hang_and_give_way
    from tests.system.processes import SparkCluster, until

    cluster = SparkCluster(folder, cores=1, hosts=("127.0.0.1", "127.0.0.2"))
    os.environ |= cluster.environment
    try:
        conf = {
            "spark.executor.memory": "512m",
            "spark.executorEnv.PYTHONPATH": str(REPOSITORY),
        }
        spark = start_session(SparkSettings(master=cluster.url, conf=conf))
        until(lambda: len(cluster.executors()) == 2, "a cluster of two executors did not come")
        hang_and_give_way(spark, folder, hung=1)
        spark.stop()
    finally:
        cluster.close()
    print("equal")


def test_a_run_that_hangs_on_all_executors_gives_way(tmp_path: Path) -> None:
    """Another dataflow runs, the epoch runs again in one of both slots, each record counts once."""
    run_fresh("tests.spark.test_giving_way_on_a_cluster", tmp_path)


if __name__ == "__main__":
    from tests.spark import test_giving_way_on_a_cluster  # workers know the classes by this name

    test_giving_way_on_a_cluster.run_on_cluster(Path(sys.argv[1]))
