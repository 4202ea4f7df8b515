"""Spark jobs of a run: their tag, pool and slots, and the files that they could not read.

The jobs of one dataflow share a pool, and Spark assigns slots to pools in turn. So a job of many
tasks does not keep jobs of other dataflows waiting until the last of its tasks has begun.

Jobs of a recomputation run in separate Python workers, so what runs have left in a process cannot
make both sides of a comparison wrong in the same way.

A run is starved if all of its jobs wait for a slot.

Guaranteed: a run between two jobs, or whose plan is still being made, does not count as starved.
Not guaranteed: that a starved run stays so for long; check more than once before acting on it.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, nullcontext
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext, StatusTracker
from pyspark.errors import PySparkException

from cbp.engine.interface.runs import RunPlan
from cbp.errors import OperatingError

_POOL = "spark.scheduler.pool"
_UNREADABLE = ("FAILED_READ_FILE", "FILE_NOT_EXIST", "PATH_NOT_FOUND", "is not a Parquet file")


class WorkerVariables(MutableMapping[str, str]):
    """The environment of Spark's Python workers, by which Spark distinguishes its sets of workers.

    PySpark reads it in the thread that makes a job. It replaces `SparkContext.environment`.
    """

    def __init__(self, every: Mapping[str, str]) -> None:
        self._every = dict(every)
        self._more = threading.local()

    @classmethod
    def of(cls, context: SparkContext) -> WorkerVariables:
        """Return the variables of a context's workers; the first call installs them."""
        held: Any = context.environment
        variables = held if isinstance(held, cls) else cls(held)
        vars(context)["environment"] = variables  # which is declared as a dict
        return variables

    @contextmanager
    def recomputing(self) -> Iterator[None]:
        """Let this thread's jobs run in the workers of recomputations until the block ends."""
        self._more.variables = {"CBP_RECOMPUTES": "1"}
        try:
            yield
        finally:
            self._more.variables = {}

    def _now(self) -> dict[str, str]:
        return {**self._every, **getattr(self._more, "variables", {})}

    def __getitem__(self, name: str) -> str:
        return self._now()[name]

    def __setitem__(self, name: str, value: str) -> None:
        """Set a variable of all workers, as PySpark's dict does."""
        self._every[name] = value

    def __delitem__(self, name: str) -> None:
        """Remove a variable of all workers."""
        del self._every[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())


@contextmanager
def jobs_of(context: SparkContext, plan: RunPlan) -> Iterator[None]:
    """Tag this thread's Spark jobs with the run, in its dataflow's pool, until the block ends.

    Those of a recomputation run in its Python workers.
    """
    context.addJobTag(plan.run)
    context.setLocalProperty(_POOL, plan.dataflow)
    variables = WorkerVariables.of(context)
    try:
        with variables.recomputing() if plan.recomputes else nullcontext():
            yield
    finally:
        context.setLocalProperty(_POOL, None)  # type: ignore[arg-type]  # that removes it
        context.removeJobTag(plan.run)


def starved(context: SparkContext, runs: Collection[str]) -> Collection[str]:
    """Return the runs whose jobs all wait for a slot; a run's id is the tag of its jobs.

    `OperatingError` if Spark does not answer.
    """
    tracker = context.statusTracker()
    tagged: Any = context._jsc.sc().statusTracker()  # PySpark's tracker knows groups, not tags
    try:
        return [run for run in runs if _starves(tracker, list(tagged.getJobIdsForTag(run)))]
    except Py4JError as exc:
        message = f"Spark did not answer which runs have slots: {exc}"
        raise OperatingError(message) from exc


def is_unreadable(exc: Exception) -> bool:
    """Return whether Spark could not read a file of an increment."""
    spark = isinstance(exc, (PySparkException, Py4JJavaError))  # not every error is converted
    return spark and any(mark in str(exc) for mark in _UNREADABLE)


def _starves(tracker: StatusTracker, jobs: Collection[int]) -> bool:
    job_infos = [job for id_ in jobs if (job := tracker.getJobInfo(id_)) is not None]
    stages = [
        stage
        for job in job_infos
        if job.status == "RUNNING"
        for id_ in job.stageIds
        if (stage := tracker.getStageInfo(id_)) is not None
    ]
    waiting = any(stage.numCompletedTasks < stage.numTasks for stage in stages)
    return waiting and not any(stage.numActiveTasks for stage in stages)
