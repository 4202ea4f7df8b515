"""The jobs of a run: how many slots they take, and whose pool they share."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import DirectEngine
from cbp.engine.spark import SparkExecutor
from cbp.engine.spark.jobs import starved
from tests.cbp.engine.epochs import dataflow_of
from tests.driver import Driver
from tests.limited import SHUFFLED

pytestmark = pytest.mark.spark


def widest(spark: Any, run: str) -> int:
    """Return the most tasks that a stage of a run's jobs had."""
    tracker = spark.sparkContext.statusTracker()
    jobs = spark.sparkContext._jsc.sc().statusTracker().getJobIdsForTag(run)
    stages = [id_ for job in jobs for id_ in tracker.getJobInfo(job).stageIds]
    actual: list[int] = [tracker.getStageInfo(id_).numTasks for id_ in stages]
    return max(actual)


@pytest.mark.soak
def test_a_shuffled_run_takes_no_more_slots_than_it_may(spark: Any, tmp_path: Path) -> None:
    """Neither behind the shuffle nor before it, where an author's RouteBy may hang as well.

    Its dataflow has a pool of its own; a run that is over starves no more.
    """
    settings = {
        "spark.sql.files.maxPartitionBytes": "10000",
        "spark.sql.files.openCostInBytes": "0",
    }
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        for slots_max in (None, 1):
            engine = DirectEngine(SparkExecutor(spark), cache=str(tmp_path / "c"), limits=SHUFFLED)
            dataflow = dataflow_of("url_count", buckets=4)
            driver = Driver(engine, dataflow, tmp_path / f"{slots_max}")
            first = 7_000 if slots_max else 8_000  # no other run of this session has this id
            driver.runs = itertools.count(first)
            driver.slots_max = slots_max
            driver.feed("s_urls", [{"url": f"https://{n}.example"} for n in range(4_500)])
            driver.run_until_idle()
            run = f"r{first:06d}"
            assert (widest(spark, run) > 1) == (slots_max is None)
            assert list(starved(spark.sparkContext, [run, "nobody"])) == []
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    pool = spark.sparkContext._jsc.sc().getPoolForName(dataflow.name)
    assert pool.isDefined()
    assert spark.sparkContext.getLocalProperty("spark.scheduler.pool") is None
