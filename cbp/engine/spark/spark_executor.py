"""Executor on Spark: one run as one Spark job that reads, routes, groups and translates.

A large increment is shuffled:

    flow files -> each task's records, in order (`cbp.engine.spark.bucket_shuffle`)
      -> mapInArrow(StageTask) -> reports

Every task reads all of a small increment (`cbp.engine.shuffle.replicated_read`): such a job is a
plain RDD of task numbers, which costs half of what an empty DataFrame does. If its start would be
more than a tenth of the run, resident workers run its tasks (`cbp.model.plan.spark_or_worker`).
Tasks of a loop that exchange messages run together (`cbp.engine.spark.barrier_stage`).

State is never shuffled: a task opens its buckets' files itself. The rows of a partition reach the
driver once, so no record names the files of a retried or speculated twin.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pickle import PicklingError

from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession

from cbp.clock import MACHINE, Clock
from cbp.engine.interface.runs import ProcessStack, RunPlan
from cbp.engine.run.cancelled_runs import CancelledRuns
from cbp.engine.shuffle.routing_keys import computes
from cbp.engine.spark.barrier_stage import (
    BarrierJobs,
    TooFewSlotsError,
    exchange_task,
    loop_tasks_of,
)
from cbp.engine.spark.bucket_shuffle import shuffled
from cbp.engine.spark.jobs import WorkerVariables, is_unreadable, jobs_of, starved
from cbp.engine.spark.placement import Placement
from cbp.engine.spark.session import require_safe
from cbp.engine.spark.sql.job import SqlJob, SqlSession, parts_of
from cbp.engine.spark.sql.query_check import QueryCheck, SqlKeys, failed_expression
from cbp.engine.spark.tasks import (
    RESULT,
    Work,
    arranged,
    as_task,
    group_task,
    nothing,
    nothing_in_arrow,
    numbered,
    shared_out,
)
from cbp.engine.spark.worker_pool import WorkerPool
from cbp.engine.task.record_task import record_shares
from cbp.engine.task.reports import JobLane, TaskReport, decode, encode
from cbp.engine.task.stage_task import StageTask
from cbp.engine.task.task_plan import TaskPlan
from cbp.engine.workers.carried_errors import carried_error
from cbp.engine.workers.ended_workers import ended_worker
from cbp.engine.workers.shipping import refuse_unsendable, ship_with_fingerprints, with_differences
from cbp.errors import (
    CbpError,
    CodeNotLoadedError,
    DiskFullError,
    IncrementDamagedError,
    RunCancelledError,
    RunStackUnseenError,
    SparkJobError,
    SparkLostError,
)
from cbp.errors.message_limits import shortened
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.flow.increment import DataFile
from cbp.model.plan.spark_or_worker import JOB_START_SECONDS, Bypass, Lane, work_seconds

_EXECUTOR_ENV = "spark.executorEnv."

CANCEL_SECONDS = 1.0
"""A cancelled run that has not ended is cancelled again after this time."""

_LOST = ("SparkContext was shut down", "stopped SparkContext", "Master removed our application")

_log = logging.getLogger(__name__)


class SparkExecutor:
    """Carries out the tasks of a run on Spark; see the module header.

    Args:
        resident_workers: Maximum number of processes beside a local Spark that do small runs
            without a job; see `cbp.engine.spark.worker_pool`.
        job_start_seconds: See `cbp.model.plan.spark_or_worker.Bypass`.
        plan_optimisations: Whether plans in SQL are optimised beyond what Spark does.
        loop_tasks_max: Maximum number of tasks of a loop; 0 means one per slot.
    """

    shuffles = True

    def __init__(
        self,
        spark: SparkSession,
        *,
        kind: type[StageTask] = StageTask,
        resident_workers: int = 0,
        job_start_seconds: float = JOB_START_SECONDS,
        plan_optimisations: bool = True,
        loop_tasks_max: int = 1,
        clock: Clock = MACHINE,
    ) -> None:
        require_safe(spark)
        ship_with_fingerprints()
        self.spark, self._kind, self._clock = spark, kind, clock
        self._cancelled = CancelledRuns()
        self._going: set[str] = set()
        self._placement = Placement(spark.sparkContext)
        most = min(resident_workers, self.slots) if self._placement.is_local else 0
        self.bypass = Bypass(most, job_start_seconds)
        conf = dict(spark.sparkContext.getConf().getAll())
        of_workers = [name for name in conf if name.startswith(_EXECUTOR_ENV)]
        environment = {name.removeprefix(_EXECUTOR_ENV): conf[name] for name in of_workers}
        self.residents = WorkerPool(most, environment)
        WorkerVariables.of(spark.sparkContext)  # installed before threads make jobs
        self._expressions, self._queries = SqlKeys(spark), QueryCheck(spark)
        self._sessions: dict[tuple[str, str], list[SqlSession]] = {}
        self._plan_optimisations = plan_optimisations
        self._barriers = BarrierJobs(spark.sparkContext, self._placement)
        is_local = self._placement.is_local
        self.loop_tasks_max = loop_tasks_of(loop_tasks_max, self.slots, conf, is_local=is_local)

    @property
    def slots(self) -> int:
        """How many tasks Spark runs at the same time."""
        return self.spark.sparkContext.defaultParallelism

    def loop_slots(self) -> int:
        """Return how many tasks of a loop could run together at this moment; at least 1."""
        free = self._barriers.slots() - self._barriers.running()
        return max(1, min(self.loop_tasks_max, self.slots, free))

    def warm_up(self) -> None:
        """Start every slot's Python worker, which takes seconds to import the code of tasks."""
        self._run_numbered(self.slots, nothing)
        frame = self.spark.range(0, self.slots, 1, self.slots)
        frame.mapInArrow(nothing_in_arrow, RESULT).collect()

    def refuse(self, dataflow: str, nodes: Sequence[StageNode]) -> None:
        """Raise for keys in SQL that Spark refuses, and for SQL that depends on the clock."""
        self._expressions.check(dataflow, nodes)
        self._queries.check(dataflow, nodes)

    def execute(self, plan: RunPlan, task: TaskPlan) -> list[TaskReport]:
        """Run the job and return the reports of its tasks."""
        return self.run_job(plan, partial(self._bodies, plan, task))

    def run_job(self, plan: RunPlan, bodies: Callable[[], list[str]]) -> list[TaskReport]:
        """Run a job under the run's tag; `bodies` returns the reports of its tasks as JSON."""
        self._going.add(plan.run)
        try:
            with jobs_of(self.spark.sparkContext, plan):
                self._require_going(plan.run)  # before this job, or between two of its run
                texts = bodies()
        except Exception as exc:
            if isinstance(exc, PicklingError | TypeError):
                refuse_unsendable((plan.node, *plan.fused))
            error = self._coded(exc, plan)
            # Only now: a run that is cancelled while this job ends must not begin its next job.
            self._cancelled.discard(plan.run)
            raise error from exc
        finally:
            self._going.discard(plan.run)
        return [report for text in texts for report in decode(text)]

    def _bodies(self, plan: RunPlan, task: TaskPlan) -> list[str]:
        if task.spec.record_wise:
            work = record_shares(plan, plan.slots_of(self.slots), task.limits)
            own = partial(shared_out, task, work, self._kind)
            return self._without_shuffle(plan, task, len(work), own)
        if task.spec.form == "sql":
            parts = parts_of(task, small=self.is_small(plan, task))
            job = SqlJob(self._beside(plan, len(parts)), parts, plan, task)
            bodies = job.bodies(partial(self._require_going, plan.run))
            return [*bodies, encode([JobLane(Lane.SQL)])]
        task = self._placed(plan, task)
        if task.spec.supersteps > 1 and task.tasks > 1:
            return self._together(plan, task)
        if not self._shuffles(plan, task):
            own = partial(arranged, task, self._kind)
            return self._without_shuffle(plan, task, task.tasks, own)
        frame = shuffled(self.spark, plan, task).mapInArrow(group_task(task, self._kind), RESULT)
        return [*(row.body for row in frame.collect()), encode([JobLane(Lane.SPARK)])]

    def _together(self, plan: RunPlan, task: TaskPlan) -> list[str]:
        """Run a loop of several tasks; of fewer, if Spark now has fewer free slots."""
        jobs = self._barriers

        def job() -> list[str]:
            if not self._shuffles(plan, task):
                return jobs.arranged(task, self._kind)
            records = shuffled(self.spark, plan, task)
            frame = records.mapInArrow(exchange_task(task, self._kind), RESULT, barrier=True)
            return [row.body for row in frame.collect()]

        try:
            body = jobs.reports(plan, task.tasks, job, partial(self._require_going, plan.run))
        except TooFewSlotsError as few:
            tasks = min(few.slots, task.tasks - 1)
            _log.warning(
                "run %s: the loop of stage %r uses %d instead of %d tasks, because its tasks must "
                "run together, and Spark has too few free slots",
                plan.run,
                task.stage,
                tasks,
                task.tasks,
            )
            return self._bodies(plan, replace(task, tasks=tasks))
        return [body, encode([JobLane(Lane.SPARK)])]

    def _require_going(self, run: str) -> None:
        if run in self._cancelled:
            raise RunCancelledError(run)

    def _beside(self, plan: RunPlan, count: int) -> list[SqlSession]:
        """Return sessions for the parts of one stage; no other stage uses them."""
        sessions = self._sessions.setdefault((plan.folder, plan.node.name), [])
        for _ in range(count - len(sessions)):
            sessions.append(SqlSession.beside(self.spark, optimised=self._plan_optimisations))
        return sessions[:count]

    def is_small(self, plan: RunPlan, task: TaskPlan) -> bool:
        """Return whether a shuffle costs more than every task reading the complete increment."""
        increments = [i for many in plan.inputs.values() for i in many]
        if any(i.records for i in increments) and any(one.in_sql for one in task.spec.inputs):
            return False  # only Spark evaluates it, and only on its way to the shuffle
        return _are_few([file for increment in increments for file in increment.files], task)

    def _placed(self, plan: RunPlan, task: TaskPlan) -> TaskPlan:
        """Return the plan; inputs with too many messages outside sorted files are shuffled."""
        few = {name for name in task.in_place if _are_few(_loose(plan, task, name), task)}
        return task if few == task.in_place else replace(task, in_place=frozenset(few))

    def _shuffles(self, plan: RunPlan, task: TaskPlan) -> bool:
        """Return whether Spark has records to shuffle; messages read in place are not shuffled."""
        if task.set_aside is not None and any(computes(one) for one in task.spec.inputs):
            return False  # a step before the shuffle cannot report a record that has no key
        others = [one for one in task.spec.inputs if one.name not in task.in_place]
        came = [one for one in others if any(i.files for i in plan.inputs.get(one.name, ()))]
        loose = [file for name in plan.inputs for file in _loose(plan, task, name)]
        return bool(came) and (
            any(one.in_sql for one in task.spec.inputs) or not _are_few(loose, task)
        )

    def _without_shuffle(self, plan: RunPlan, task: TaskPlan, tasks: int, work: Work) -> list[str]:
        """Run small tasks in resident workers if a job's start costs too much; else as a job."""
        size = sum(increment.bytes for many in plan.inputs.values() for increment in many)
        seconds = work_seconds(task.work, size, tasks=tasks, form=task.spec.form)
        takes = self.bypass.takes(tasks, seconds)
        if takes and not plan.recomputes and self.is_small(plan, task):
            attempt, going = f"r{uuid.uuid4().hex[:12]}", partial(self._require_going, plan.run)
            after = task.limits.resident_after_runs
            answers = self.residents.reports(
                plan.run, work, tasks, attempt=attempt, going=going, after=after
            )
            if answers is not None:
                return [*answers, encode([JobLane(Lane.RESIDENT)])]
        return [*self._run_numbered(tasks, as_task(work)), encode([JobLane(Lane.SPARK)])]

    def _run_numbered(self, tasks: int, work: Callable[[], list[str]]) -> list[str]:
        numbers = self._placement.numbers(tasks)
        bodies: list[str] = self.spark.sparkContext.runJob(numbers, partial(numbered, work))
        return bodies

    def warm(self) -> None:
        """Do nothing: Spark is running."""

    def waits_for(self) -> str:
        """Return `""`: Spark is running."""
        return ""

    def cancel(self, run: str) -> None:
        """Interrupt the job of a run, and the resident workers that serve it; does not wait.

        Spark forgets the request if it does not know the job yet: while its plan is being made, or
        while Spark waits for the slots of a barrier stage. So the request is repeated.
        """
        repeats = run in self._cancelled
        self._cancelled.add(run)
        self.residents.cancel(run)
        self.spark.sparkContext.cancelJobsWithTag(run)
        if run in self._going and not repeats:
            cancel = partial(self._cancel_again, run)
            threading.Thread(target=cancel, name="cbp-cancel", daemon=True).start()

    def _cancel_again(self, run: str) -> None:
        while True:
            self._clock.wait(CANCEL_SECONDS)
            if run not in self._going:
                return
            try:
                self.spark.sparkContext.cancelJobsWithTag(run)
            except Exception:  # of any kind: Spark is stopping, so its jobs end anyway
                _log.info("run %s: Spark did not accept the cancellation", run, exc_info=True)
                return

    def stacks(self, run: str) -> Sequence[ProcessStack]:
        """Return where the resident workers of a run are now.

        Raises `RunStackUnseenError` if Spark plans the run, or executes it in its own workers or as
        SQL.
        """
        stacks = self.residents.stacks(run)
        if not stacks and run in self._going:
            raise RunStackUnseenError(run)
        return stacks

    def starved(self, runs: Collection[str]) -> Collection[str]:
        """Return the runs whose jobs all wait for a slot."""
        return starved(self.spark.sparkContext, runs)

    def forget(self, folder: str) -> None:
        """Drop the sessions of a folder's stages, and the checks of its dataflow."""
        self._queries.forget(folder.rpartition("/")[2])
        for stage in list(self._sessions):  # a copy, since runs of other stages add theirs
            if stage[0] == folder:
                self._sessions.pop(stage, None)

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
        if (error := carried_error(text)) is not None:
            return with_differences(error) if isinstance(error, CodeNotLoadedError) else error
        if (failed := failed_expression(plan.node, text)) is not None:
            return failed
        if (ended := ended_worker(plan.run, (plan.node, *plan.fused), text)) is not None:
            return ended
        if is_unreadable(exc):
            names = ", ".join(i.name for many in plan.inputs.values() for i in many)
            expected = sum(i.records for many in plan.inputs.values() for i in many)
            return IncrementDamagedError(names, expected=expected, found=text[:500])
        if "No space left on device" in text:
            return DiskFullError("Spark's temporary files")
        if isinstance(exc, Py4JNetworkError | ConnectionError) or any(one in text for one in _LOST):
            return SparkLostError(text[:500])
        return SparkJobError(plan.run, shortened(text, 2000))


def _loose(plan: RunPlan, task: TaskPlan, name: str) -> list[DataFile]:
    """Return the files of an input that every task would have to read completely."""
    return [
        file
        for increment in plan.inputs.get(name, ())
        for file in increment.files
        if not (name in task.in_place and file.whole and file.buckets == task.buckets)
    ]


def _are_few(files: Sequence[DataFile], task: TaskPlan) -> bool:
    """Return whether these files are few enough for every task to read all of them."""
    return (
        sum(file.rows for file in files) * task.tasks <= task.limits.arranged_reads
        and sum(file.share_bytes for file in files) <= task.limits.arranged_bytes
    )
