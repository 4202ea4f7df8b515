"""Spark jobs of a run: their tag, pool and slots, and the files that they could not read.

The jobs of one dataflow share a pool, and Spark gives slots to pools in turn. So a job of many
tasks does not keep jobs of other dataflows waiting until the last of its tasks has begun.

Jobs of a recomputation run in Python workers of their own, so what runs have left in a process
cannot make both sides of a comparison wrong alike.

The tasks of a loop run at the same time, in one barrier job (`BarrierJobs`): they learn each
other's address once, and exchange messages by Arrow Flight. Spark gives such a job all slots at
once, or none. So it is asked for no more than are free; if it still gets none within
`SLOTS_SECONDS`, it is cancelled, and the loop has one task. Spark does not try a barrier job again
if one of its tasks is lost. It is made again here, as often as Spark tries a task of any other job,
and goes on from the last snapshot of all its tasks.

Guaranteed: a run between two jobs, or whose plan is still being made, does not count as starved.
Not guaranteed: more than a picture of the last moments; check more than once before acting on it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext, StatusTracker
from pyspark.errors import PySparkException

from cbp.clock import MACHINE, Clock
from cbp.engine.interface.runs import RunPlan
from cbp.errors import OperatingError

SLOTS_SECONDS = 10.0
"""How long a barrier job, or an executor that is to replace a lost one, is waited for."""

CLUSTER_TRIES = 4
"""How often Spark tries a task on a cluster."""

_POLL_SECONDS = 0.2
_REFUSED = "SPARK-24819"
"""What Spark's error names if a cluster has fewer slots than a barrier job has tasks."""

_WITHOUT_BARRIER = (
    "spark.dynamicAllocation.enabled",
    "spark.network.crypto.enabled",
    "spark.authenticate.enableSaslEncryption",
    "spark.ssl.enabled",
    "spark.ssl.rpc.enabled",
)

_POOL = "spark.scheduler.pool"
_UNREADABLE = ("FAILED_READ_FILE", "FILE_NOT_EXIST", "PATH_NOT_FOUND", "is not a Parquet file")


class WorkerVariables(MutableMapping[str, str]):
    """The environment of Spark's Python workers, by which Spark distinguishes its sets of workers.

    PySpark asks for it in the thread that makes a job. It takes the place of
    `SparkContext.environment`.
    """

    def __init__(self, every: Mapping[str, str]) -> None:
        self._every = dict(every)
        self._more = threading.local()

    @classmethod
    def of(cls, context: SparkContext) -> WorkerVariables:
        """Return the variables of a context's workers; they are put there at the first call."""
        held: Any = context.environment
        variables = held if isinstance(held, cls) else cls(held)
        vars(context)["environment"] = variables  # which is declared as a dict
        return variables

    @contextmanager
    def recomputing(self) -> Iterator[None]:
        """Let the jobs that this thread makes run in the workers of recomputations."""
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
    """Tag the Spark jobs that this thread starts with the run's id, until the block ends.

    They go into the pool of the run's dataflow.
    """
    context.addJobTag(plan.run)
    context.setLocalProperty(_POOL, plan.dataflow)
    try:
        yield
    finally:
        context.setLocalProperty(_POOL, None)  # type: ignore[arg-type]  # that removes it
        context.removeJobTag(plan.run)


def starved(context: SparkContext, runs: Collection[str]) -> Collection[str]:
    """Return the runs whose jobs all wait for a slot; a run's id is the tag of its jobs.

    Raises:
        OperatingError: If Spark does not answer.
    """
    tracker = context.statusTracker()
    tagged: Any = context._jsc.sc().statusTracker()  # PySpark's tracker knows groups, not tags
    try:
        return [run for run in runs if _starves(tracker, list(tagged.getJobIdsForTag(run)))]
    except Py4JError as exc:
        message = f"Spark does not say which runs have slots: {exc}"
        raise OperatingError(message) from exc


def has_begun(context: SparkContext, tag: str) -> bool:
    """Return whether a task of a job with this tag has had a slot.

    Raises:
        OperatingError: If Spark does not answer.
    """
    tracker = context.statusTracker()
    tagged: Any = context._jsc.sc().statusTracker()
    try:
        jobs = [tracker.getJobInfo(id_) for id_ in tagged.getJobIdsForTag(tag)]
        ids = [id_ for job in jobs if job is not None for id_ in job.stageIds]
        stages = [stage for id_ in ids if (stage := tracker.getStageInfo(id_)) is not None]
    except Py4JError as exc:
        message = f"Spark does not say whether a job has slots: {exc}"
        raise OperatingError(message) from exc
    return any(one.numActiveTasks or one.numCompletedTasks or one.numFailedTasks for one in stages)


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


class NoSlotsError(Exception):
    """A barrier job did not get its slots."""


@dataclass(frozen=True, slots=True)
class BarrierJobs:
    """The barrier jobs of one context; safe to use from several threads.

    Attributes:
        tries: How often a job is made if tasks of it are lost.
    """

    context: SparkContext
    tries: int
    clock: Clock = MACHINE

    def tasks_max(self, slots: int) -> int:
        """Return how many tasks of a loop can exchange messages at most.

        One if Spark adds executors only when tasks wait, since it refuses barrier jobs then; or if
        it encrypts what its own processes send, since the messages of tasks are not.
        """
        conf = self.context.getConf()
        without = any(str(conf.get(name, "false")).lower() == "true" for name in _WITHOUT_BARRIER)
        return 1 if without else slots

    def slots_free(self) -> int:
        """Return how many slots no task has at this moment.

        Raises:
            OperatingError: If Spark does not answer.
        """
        try:
            spark: Any = self.context._jsc.sc()
            profile = spark.resourceProfileManager().defaultResourceProfile()
            total = int(spark.maxNumConcurrentTasks(profile))
            tracker = self.context.statusTracker()
            stages = (tracker.getStageInfo(id_) for id_ in tracker.getActiveStageIds())
            return total - sum(stage.numActiveTasks for stage in stages if stage is not None)
        except Py4JError as exc:
            message = f"Spark does not say which slots are free: {exc}"
            raise OperatingError(message) from exc

    def run(
        self,
        tag: str,
        tasks: int,
        job: Callable[[], list[str]],
        is_lost: Callable[[Exception], bool],
    ) -> list[str]:
        """Run a job, and again if a task of it was lost; return what it returns.

        Args:
            tag: Names the job; no other job has it.
            tasks: How many slots it needs.
            is_lost: Whether an error says that a task was lost, so that another try may succeed.

        Raises:
            NoSlotsError: It did not get its slots.
        """
        for left in reversed(range(self.tries)):
            try:
                with self._giving_up(tag):
                    return job()
            except NoSlotsError:
                raise
            except Exception as exc:
                if not left or not is_lost(exc):
                    raise
                if not self._wait_for_slots(tasks):
                    raise NoSlotsError(tag) from exc
        raise NoSlotsError(tag)

    def _wait_for_slots(self, tasks: int) -> bool:
        """Wait until so many slots are free; return whether they are."""
        until = self.clock.seconds() + SLOTS_SECONDS
        while self.slots_free() < tasks:
            if self.clock.seconds() > until:
                return False
            self.clock.wait(_POLL_SECONDS)
        return True

    @contextmanager
    def _giving_up(self, tag: str) -> Iterator[None]:
        """Let the job that the block runs give up if it does not get its slots."""
        gave_up, ended = threading.Event(), threading.Event()

        def look() -> None:
            if ended.wait(SLOTS_SECONDS):
                return
            with suppress(OperatingError):
                if not has_begun(self.context, tag):
                    gave_up.set()
                    self.context.cancelJobsWithTag(tag)

        watch = threading.Thread(target=look, name="cbp-slots", daemon=True)
        self.context.addJobTag(tag)
        watch.start()
        try:
            yield
        except Exception as exc:
            if gave_up.is_set() or _REFUSED in str(exc):
                raise NoSlotsError(tag) from exc
            raise
        finally:
            ended.set()
            self.context.removeJobTag(tag)
