"""Workers of Spark, and resident ones, between tasks: what an author changes stays behind."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cbp.engine.direct import DirectEngine
from cbp.engine.spark import SparkExecutor
from cbp.engine.spark.jobs import WorkerVariables
from cbp.model.plan.spark_or_worker import Bypass, Lane, lanes_of
from tests.cbp.engine.workers.changing import CHANGES, Change, Observe, one_stage
from tests.driver import Driver


@pytest.fixture(params=[Lane.SPARK, Lane.RESIDENT])
def executor(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkExecutor]:
    """Give an executor whose small runs take one lane."""
    workers = 1 if request.param is Lane.RESIDENT else 0
    executor = SparkExecutor(spark, resident_workers=workers)
    executor.bypass = Bypass(workers, job_start_seconds=1000.0)
    executor.residents.start()
    yield executor
    executor.residents.close()


def played(executor: SparkExecutor, folder: Path, translator: Any) -> tuple[Any, set[Lane]]:
    """Run a dataflow of one stage over one record; return what it wrote, and its lanes."""
    driver = Driver(
        DirectEngine(executor, cache=f"{folder}/cache"), one_stage("d", translator), folder
    )
    driver.feed("urls", [{"url": "a"}])
    driver.run_until_idle()
    return driver.outputs("one.seen")[-1], set(lanes_of(driver.figures[-1]))


@pytest.mark.part(every=3)
@pytest.mark.parametrize("kind", ["digits", "zone", "list"])
def test_what_one_dataflow_changes_another_does_not_see(
    executor: SparkExecutor, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """In any lane; the error names stage, function and line, once for a run."""
    before, lanes = played(executor, tmp_path / "before", Observe())
    resident = bool(executor.residents.most)
    assert lanes == {Lane.RESIDENT if resident else Lane.SPARK}
    with caplog.at_level(logging.WARNING, logger="cbp"):
        played(executor, tmp_path / "change", Change(kind))
        executor.residents.start()
        for again in range(4):
            assert played(executor, tmp_path / f"{again}", Observe())[0] == before
    said = [one.getMessage() for one in caplog.records if one.name.startswith("cbp")]
    (told,) = [one for one in said if "Change.translate" in one]
    assert "changing.py:" in told
    assert CHANGES[kind][1] in told
    assert len(said) == 1


@pytest.mark.soak
def test_a_recomputation_has_workers_of_its_own(spark: SparkSession) -> None:
    """Spark keeps them apart by their environment, and only in the thread that recomputes."""
    variables = WorkerVariables.of(spark.sparkContext)

    def workers() -> set[int]:
        return set(spark.sparkContext.parallelize(range(4), 4).map(lambda _: os.getpid()).collect())

    runs = workers()
    with variables.recomputing():
        recomputations = workers()
    assert recomputations.isdisjoint(runs)
    assert "CBP_RECOMPUTES" not in dict(variables)
