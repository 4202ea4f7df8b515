"""The jobs of a run as Spark knows them: their tag, their pool, and whether they have slots.

Jobs of one dataflow share a pool, and Spark gives slots to pools in turn: so a job of many
tasks does not keep those of other dataflows waiting until the last of its tasks has begun.

Guaranteed: who starves is nothing but a picture of the last moments; whoever acts on it looks
more than once. A run between two jobs, or whose plan is still being made, does not starve.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext, StatusTracker

from cbp.engine.base import RunPlan
from cbp.errors import OperatingError

__all__ = ["jobs_of", "starved"]

_POOL = "spark.scheduler.pool"


@contextmanager
def jobs_of(context: SparkContext, plan: RunPlan) -> Iterator[None]:
    """Let the jobs that this thread starts be known as the run's, and share its pool."""
    context.addJobTag(plan.run)
    context.setLocalProperty(_POOL, plan.dataflow)
    try:
        yield
    finally:
        context.setLocalProperty(_POOL, None)  # type: ignore[arg-type]  # that removes it
        context.removeJobTag(plan.run)


def starved(context: SparkContext, runs: Collection[str]) -> Collection[str]:
    """Return those of these runs, each its jobs' tag, whose jobs all wait for a slot.

    Raises:
        OperatingError: If Spark does not answer.
    """
    tracker = context.statusTracker()
    tagged: Any = context._jsc.sc().statusTracker()  # PySpark's finds jobs by group only
    try:
        return [run for run in runs if _starves(tracker, list(tagged.getJobIdsForTag(run)))]
    except Py4JError as exc:
        message = f"Spark does not say which runs have slots: {exc}"
        raise OperatingError(message) from exc


def _starves(tracker: StatusTracker, jobs: Collection[int]) -> bool:
    found = [job for id_ in jobs if (job := tracker.getJobInfo(id_)) is not None]
    stages = [
        stage
        for job in found
        if job.status == "RUNNING"
        for id_ in job.stageIds
        if (stage := tracker.getStageInfo(id_)) is not None
    ]
    waiting = any(stage.numCompletedTasks < stage.numTasks for stage in stages)
    return waiting and not any(stage.numActiveTasks for stage in stages)
