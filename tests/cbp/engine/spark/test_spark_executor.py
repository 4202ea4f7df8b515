"""The executor on Spark, as far as no Spark is needed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cbp.engine.run.cancelled_runs import CancelledRuns
from cbp.engine.spark.spark_executor import SparkExecutor
from cbp.engine.task.reports import JobLane, encode
from cbp.errors import RunCancelledError
from cbp.model.plan.spark_or_worker import Lane

DONE = [encode([JobLane(Lane.SPARK)])]


@pytest.fixture
def executor() -> SparkExecutor:
    """Return an executor whose Spark accepts everything."""
    context = SimpleNamespace(
        environment={},
        addJobTag=lambda tag: None,
        removeJobTag=lambda tag: None,
        setLocalProperty=lambda name, value: None,
        cancelJobsWithTag=lambda tag: None,
    )
    one: Any = SparkExecutor.__new__(SparkExecutor)
    one.spark = SimpleNamespace(sparkContext=context)
    one.residents = SimpleNamespace(cancel=lambda run: None)
    one._clock = SimpleNamespace(wait=lambda seconds: None)
    one._going, one._cancelled = set(), CancelledRuns()
    executor: SparkExecutor = one
    return executor


def plan_of(run: str) -> Any:
    """Return the parts of a plan that a job needs."""
    return SimpleNamespace(run=run, dataflow="d", recomputes=False, node=None, fused=(), inputs={})


def test_a_run_that_is_cancelled_as_a_job_ends_begins_no_other_one(
    executor: SparkExecutor,
) -> None:
    """Spark no longer interrupts a job whose results it has; the next job is refused."""

    def last_moment() -> list[str]:
        executor.cancel("r1")
        return DONE

    assert executor.run_job(plan_of("r1"), last_moment)
    with pytest.raises(RunCancelledError):
        executor.run_job(plan_of("r1"), lambda: DONE)
    assert executor.run_job(plan_of("r2"), lambda: DONE)


def test_a_cancelled_run_is_forgotten_once_it_has_ended(executor: SparkExecutor) -> None:
    """Its ended job has whatever error, which counts as the cancellation."""

    def interrupted() -> list[str]:
        executor.cancel("r1")
        raise OSError

    with pytest.raises(RunCancelledError):
        executor.run_job(plan_of("r1"), interrupted)
    assert "r1" not in executor._cancelled
