"""Executor interface: carries out the tasks of a run; and the local executor, in this process.

Guaranteed: every executor runs the same task code (`cbp.engine.task.stage_task`) on the same files,
so that results do not depend on the executor (tests/cbp/engine/test_direct.py,
tests/spark/test_spark_engine.py). The executor on Spark is in `cbp.engine.spark`, the one that
a service without Spark uses in `cbp.engine.workers`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Protocol

import pyarrow as pa

from cbp.engine.columnar.file_slices import InputShare
from cbp.engine.interface.runs import ProcessStack, RunControl, RunPlan, require_no_spark
from cbp.engine.shuffle.exchange import LOOPBACK, Gather, PeerGoneError
from cbp.engine.task.record_task import record_shares
from cbp.engine.task.reports import JobLane, TaskReport, has_succeeded
from cbp.engine.task.stage_task import StageTask
from cbp.engine.task.task_plan import TaskPlan
from cbp.errors import InvariantError
from cbp.model.author.process_state import process_watch
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.plan.spark_or_worker import Bypass, Lane


class Executor(RunControl, Protocol):
    """Carries out the tasks of runs; cancels and watches runs; safe to use from several threads."""

    @property
    def slots(self) -> int:
        """Number of tasks that run at the same time."""
        ...

    @property
    def shuffles(self) -> bool:
        """Whether large runs are shuffled; otherwise every task reads the whole increment."""
        ...

    @property
    def bypass(self) -> Bypass | None:
        """Which jobs run without Spark; `None` if there is no Spark."""
        ...

    @property
    def loop_tasks_max(self) -> int:
        """Maximum number of tasks of a loop, which exchange messages."""
        ...

    def loop_slots(self) -> int:
        """Return how many tasks of a loop could run together at this moment; at least 1."""
        ...

    def execute(self, plan: RunPlan, task: TaskPlan) -> list[TaskReport]:
        """Run every task of a plan; return all their reports, and one that names the job's lane.

        The reports of a task are returned once, even if Spark retries or speculates.
        """
        ...

    def forget(self, folder: str) -> None:
        """Drop cached data of a folder's stages."""
        ...

    def close(self) -> None:
        """Release the executor's resources."""
        ...


class LocalExecutor:
    """Carries out tasks one after the other in this process, without Spark."""

    slots = 2
    shuffles = False
    bypass = None
    loop_tasks_max = 1

    def __init__(self, kind: type[StageTask] = StageTask) -> None:
        self._kind = kind

    def refuse(self, dataflow: str, nodes: Sequence[StageNode]) -> None:
        """Do nothing: no SQL runs here; a Python function must replace it, or `execute` raises."""

    def execute(self, plan: RunPlan, task: TaskPlan) -> list[TaskReport]:
        """Run the same task code as Spark's workers."""
        return self.work(plan, task)()

    def work(self, plan: RunPlan, task: TaskPlan) -> Callable[[], list[TaskReport]]:
        """Return the function, to be called in any process, that runs every task of a plan."""
        require_no_spark(plan.node.name, task.spec)
        slots = plan.slots_of(self.slots)
        shares = record_shares(plan, slots, task.limits) if task.spec.record_wise else None
        return partial(_run_tasks, self._kind, task, shares)

    def loop_slots(self) -> int:
        """Return 1: tasks that wait for each other cannot run one after the other."""
        return 1

    def warm(self) -> None:
        """Do nothing: no process is started."""

    def waits_for(self) -> str:
        """Return `""`: there is nothing to start."""
        return ""

    def cancel(self, run: str) -> None:
        """Do nothing: a task here cannot be interrupted."""

    def stacks(self, run: str) -> Sequence[ProcessStack]:
        """Return no stacks: a run uses its caller's thread."""
        return ()

    def starved(self, runs: Collection[str]) -> Collection[str]:
        """Return no runs: a run never waits, since it uses its caller's thread."""
        return ()

    def forget(self, folder: str) -> None:
        """Do nothing: nothing is cached."""

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def _run_tasks(
    kind: type[StageTask], task: TaskPlan, shares: Sequence[list[InputShare]] | None
) -> list[TaskReport]:
    if shares is not None:
        runs = (kind(task, i, "0").run_shares(share) for i, share in enumerate(shares))
    else:
        runs = (kind(task, part, "0").run_arranged() for part in range(task.tasks))
    return [*(report for run in runs for report in run), JobLane(Lane.LOCAL)]


def run_together(
    kind: type[StageTask],
    task: TaskPlan,
    part: int,
    attempt: str,
    gather: Gather,
    *,
    host: str = LOOPBACK,
    batches: Iterable[pa.RecordBatch] | None = None,
) -> list[TaskReport]:
    """Run one of several tasks that exchange messages; return its reports.

    There are no reports if another task failed, which reports the error itself. `PeerGoneError` if
    the process of another task is gone.

    Args:
        gather: Sends a text to all tasks, and returns the texts of all tasks; called once.
        host: An address of this machine at which all other tasks reach it.
        batches: The shuffled records of the task; `None` if it reads the increment itself.
    """
    # Imported here: most workers never run a loop in several tasks.
    from cbp.engine.shuffle.flight_exchange import connected

    try:
        with connected(part, task.tasks, gather, host=host) as exchange:
            one = kind(task, part, attempt, exchange)
            return one.run_arranged() if batches is None else one.run(batches)
    except PeerGoneError as gone:
        if gone.broken:
            raise
        if (watch := process_watch()) is not None:
            watch.ended()  # the task ended before it compared the process
        return []


def joined_reports(by_task: Sequence[list[TaskReport]]) -> list[TaskReport]:
    """Return the reports of tasks that ran together; after failures, only the first failed task's.

    All tasks end in the superstep in which one fails, and their groups are in order. So the first
    task that failed has the error that a single task would have; with microsteps, another task may
    have failed in an earlier microstep.
    """
    if failed := [one for one in by_task if one and not has_succeeded(one)]:
        return failed[0]
    if not all(by_task):
        message = "a task of a loop ended because another had failed, but no task reported an error"
        raise InvariantError(message)
    return [*chain.from_iterable(by_task)]
