"""One run as one Spark job: read, route, put each bucket's records into its task, translate.

A large increment is shuffled:

    flow files -> each task's records, in order (`cbp.engine.spark.increments`)
      -> mapInArrow(StageTask) -> descriptors

A small one is read by every task (`cbp.engine.arrange`). That saves the shuffle and all
planning: such a job is a plain RDD of task numbers, which costs half of what an empty
DataFrame does. State never moves: a task opens its buckets' files itself.
Tasks return descriptors of what they wrote, as rows; a partition's rows reach the
driver once, so whatever a retried or speculated twin wrote is named by nobody.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cbp.engine.base import RunPlan
from cbp.engine.records import record_shares
from cbp.engine.spark.expressions import Expressions, failed_expression
from cbp.engine.spark.increments import shuffled
from cbp.engine.spark.jobs import jobs_of, starved
from cbp.engine.spark.kept import KeptPlan
from cbp.engine.spark.placement import Placement
from cbp.engine.spark.resident import Residents
from cbp.engine.spark.session import require_safe
from cbp.engine.spark.work import (
    RESULT,
    Work,
    arranged,
    as_task,
    group_task,
    nothing,
    nothing_in_arrow,
    numbered,
    shared_out,
    told_error,
)
from cbp.engine.task import StageTask
from cbp.engine.taskplan import TaskPlan
from cbp.errors import (
    CbpError,
    IncrementDamagedError,
    OperatingError,
    RunCancelledError,
)
from cbp.model.dataflow import StageNode
from cbp.model.increment import DataFile

__all__ = ["SparkExecutor", "is_damage"]

ARRANGED_READS_MAX = 4_000_000
"""Records times tasks up to which every task reads the whole increment; beyond, Spark shuffles.

Measured with two tasks on two cores: 100 k records take 0.59 s so and 1.05 s shuffled, 1 M take
4.4 and 6.4 s. Every task reads everything, so with many tasks the shuffle is the better way.
"""

ARRANGED_BYTES_MAX = 64 << 20
"""Bytes of an increment's files up to which a task may hold all of it."""

_EXECUTOR_ENV = "spark.executorEnv."
_DAMAGED = ("FAILED_READ_FILE", "FILE_NOT_EXIST", "PATH_NOT_FOUND", "is not a Parquet file")


class SparkExecutor:
    """Carries out the tasks of a run on Spark; see the module header.

    Args:
        spark: The session.
        kind: What a task is.
        resident_workers: At most so many processes beside a local Spark do small runs without
            a job.

    Attributes:
        wide: Whether a plan of its session met a text that `cbp.engine.spark.widths` refuses.
        kept: The plan of its session that may be run again.

    Raises:
        SparkSettingError: If the session does not compare what a retried stage gives.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        kind: type[StageTask] = StageTask,
        resident_workers: int = 0,
    ) -> None:
        require_safe(spark)
        self.spark, self._kind = spark, kind
        self.wide = False
        self.kept: KeptPlan | None = None
        self._cancelled: set[str] = set()
        self._placement = Placement(spark.sparkContext)
        most = min(resident_workers, self.slots) if self._placement.is_local else 0
        self.residents = Residents(most, _environment(spark))
        self._expressions = Expressions(spark)
        self._sessions: dict[tuple[str, str], list[SparkExecutor]] = {}

    @property
    def slots(self) -> int:
        """Tasks that Spark runs at the same time."""
        return self.spark.sparkContext.defaultParallelism

    @property
    def arranged_max(self) -> tuple[int, int]:
        """Records times tasks, and bytes, up to which a run is not shuffled."""
        return ARRANGED_READS_MAX, ARRANGED_BYTES_MAX

    def warm_up(self) -> None:
        """Start every slot's Python worker and let it import the task's code.

        The first arrival would otherwise wait some seconds for that.
        """
        self._run_numbered(self.slots, nothing)
        frame = self.spark.range(0, self.slots, 1, self.slots)
        frame.mapInArrow(nothing_in_arrow, RESULT).collect()

    def refuse(self, dataflow: str, nodes: Sequence[StageNode]) -> None:
        """Raise for keys in SQL that Spark does not take."""
        self._expressions.check(dataflow, nodes)

    def execute(self, plan: RunPlan, task: TaskPlan) -> list[dict[str, Any]]:
        """Run the job and return what its tasks reported."""
        try:
            with jobs_of(self.spark.sparkContext, plan):
                self._require_going(plan.run)  # before this job, or between two of its run
                bodies = self._bodies(plan, task)
        except Exception as exc:
            raise self._coded(exc, plan) from exc
        finally:
            self._cancelled.discard(plan.run)
        return [json.loads(body) for body in bodies]

    def _bodies(self, plan: RunPlan, task: TaskPlan) -> list[str]:
        """Run the job; return what its tasks reported, as JSON texts."""
        if task.spec.record_wise:
            work = record_shares(plan, plan.slots_of(self.slots))
            own = partial(shared_out, task, work, self._kind)
            return self._without_shuffle(plan, task, len(work), own)
        if task.spec.form == "sql":
            from cbp.engine.spark.sql import SqlJob, parts_of  # they rest on this module

            parts = parts_of(self, plan, task)
            job = SqlJob(self._beside(plan, len(parts)), parts, plan, task)
            return job.bodies(partial(self._require_going, plan.run))
        task = self._placed(plan, task)
        if not self._shuffles(plan, task):
            own = partial(arranged, task, self._kind)
            return self._without_shuffle(plan, task, task.tasks, own)
        frame = shuffled(self.spark, plan, task).mapInArrow(group_task(task, self._kind), RESULT)
        return [row.body for row in frame.collect()]

    def _require_going(self, run: str) -> None:
        if run in self._cancelled:
            raise RunCancelledError(run)

    def _beside(self, plan: RunPlan, count: int) -> list[SparkExecutor]:
        """Return executors for one stage in sessions of its own, with views of their own."""
        kept = self._sessions.setdefault((plan.folder, plan.node.name), [])
        for _ in range(count - len(kept)):
            session = self.spark.newSession()
            # How large a state is that comes from Python Spark does not know: it takes it to be
            # some bytes, and would send it through the driver to every join.
            session.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
            kept.append(SparkExecutor(session))
        return kept[:count]

    def is_small(self, plan: RunPlan, task: TaskPlan) -> bool:
        """Tell whether every task had better read the whole increment than Spark shuffle it."""
        increments = [i for many in plan.inputs.values() for i in many]
        if any(i.records for i in increments) and any(one.in_sql for one in task.spec.inputs):
            return False  # only Spark evaluates it, and only on its way to the shuffle
        return _are_few([file for increment in increments for file in increment.files], task)

    def _placed(self, plan: RunPlan, task: TaskPlan) -> TaskPlan:
        """Return the task without messages of which too many lie as they were emitted."""
        few = {name for name in task.in_place if _are_few(_loose(plan, task, name), task)}
        return task if few == task.in_place else replace(task, in_place=frozenset(few))

    def _shuffles(self, plan: RunPlan, task: TaskPlan) -> bool:
        """Tell whether Spark has anything to shuffle; never what is read in place."""
        others = [one for one in task.spec.inputs if one.name not in task.in_place]
        came = [one for one in others if any(i.files for i in plan.inputs.get(one.name, ()))]
        loose = [file for name in plan.inputs for file in _loose(plan, task, name)]
        return bool(came) and (
            any(one.in_sql for one in task.spec.inputs) or not _are_few(loose, task)
        )

    def _without_shuffle(self, plan: RunPlan, task: TaskPlan, tasks: int, work: Work) -> list[str]:
        """Let resident workers do a small run, or run a job."""
        if self.is_small(plan, task):
            attempt, going = f"r{uuid.uuid4().hex[:12]}", partial(self._require_going, plan.run)
            found = self.residents.reports(plan.run, work, tasks, attempt=attempt, going=going)
            if found is not None:
                return found
        return self._run_numbered(tasks, as_task(work))

    def _run_numbered(self, tasks: int, work: Callable[[], list[str]]) -> list[str]:
        """Run so many tasks that find out from their number what to do."""
        numbers = self._placement.numbers(tasks)
        bodies: list[str] = self.spark.sparkContext.runJob(numbers, partial(numbered, work))
        return bodies

    def cancel(self, run: str) -> None:
        """Interrupt the job of a run, and the workers that do it without one."""
        self._cancelled.add(run)
        self.residents.cancel(run)
        self.spark.sparkContext.cancelJobsWithTag(run)

    def starved(self, runs: Collection[str]) -> Collection[str]:
        """Return those of these runs whose jobs all wait for a slot."""
        return starved(self.spark.sparkContext, runs)

    def forget(self, folder: str) -> None:
        """Drop the sessions of a folder's stages."""
        for stage in [stage for stage in self._sessions if stage[0] == folder]:
            del self._sessions[stage]

    def close(self) -> None:
        """Stop the workers and the session."""
        self.residents.close()
        self.spark.stop()

    def _coded(self, exc: Exception, plan: RunPlan) -> CbpError:
        if plan.run in self._cancelled:
            return RunCancelledError(plan.run)
        if isinstance(exc, CbpError):
            return exc
        text = str(exc)
        if (told := told_error(text)) is not None:
            return told
        if (failed := failed_expression(plan.node, text)) is not None:
            return failed
        if is_damage(exc):
            names = ", ".join(i.name for many in plan.inputs.values() for i in many)
            expected = sum(i.records for many in plan.inputs.values() for i in many)
            return IncrementDamagedError(names, expected=expected, found=text[:500])
        return OperatingError(
            f"the Spark job of run {plan.run} failed: {text[:2000]}", run=plan.run
        )


def _environment(spark: SparkSession) -> dict[str, str]:
    """Return what Spark adds to the environment of its Python workers."""
    settings = spark.sparkContext.getConf().getAll()
    return {
        name.removeprefix(_EXECUTOR_ENV): value
        for name, value in settings
        if name.startswith(_EXECUTOR_ENV)
    }


def _loose(plan: RunPlan, task: TaskPlan, name: str) -> list[DataFile]:
    """Return the files of an input that every task would have to read whole."""
    return [
        file
        for increment in plan.inputs.get(name, ())
        for file in increment.files
        if not (name in task.in_place and file.whole and file.buckets == task.buckets)
    ]


def _are_few(files: Sequence[DataFile], task: TaskPlan) -> bool:
    """Tell whether every task may read all of some files."""
    return (
        sum(file.rows for file in files) * task.tasks <= ARRANGED_READS_MAX
        and sum(file.share_bytes for file in files) <= ARRANGED_BYTES_MAX
    )


def is_damage(exc: Exception) -> bool:
    """Tell whether Spark could not read a file of an increment."""
    spark = isinstance(exc, (PySparkException, Py4JJavaError))  # not every error is converted
    return spark and any(mark in str(exc) for mark in _DAMAGED)
