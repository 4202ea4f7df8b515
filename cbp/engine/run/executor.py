"""Executor interface: carries out the tasks of a run; and the local executor, in this process.

Guaranteed: every executor runs the same task code (`cbp.engine.task.stage_task`) on the same files,
so that results do not depend on the executor (tests/cbp/engine/test_direct.py,
tests/spark/test_spark_engine.py).
Absent on purpose: how tasks are planned (`cbp.engine.run.task_planner`), and how their reports
are used (`cbp.engine.run.preparer`). The executor on Spark is in `cbp.engine.spark`, the one that
a service without Spark uses in `cbp.engine.workers`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Protocol

from cbp.engine.columnar.file_slices import InputShare
from cbp.engine.interface.runs import RunControl, RunPlan, require_no_spark
from cbp.engine.task.record_task import record_shares
from cbp.engine.task.reports import JobLane, TaskReport
from cbp.engine.task.stage_task import StageTask
from cbp.engine.task.task_plan import TaskPlan
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.plan.lanes import Bypass, Lane


class Executor(RunControl, Protocol):
    """Carries out the tasks of runs; cancels and watches runs.

    Safe to call from several threads.
    """

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

    def execute(self, plan: RunPlan, task: TaskPlan) -> list[TaskReport]:
        """Run every task of a plan; return all their reports and one of the job's lane.

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

    def __init__(self, kind: type[StageTask] = StageTask) -> None:
        self._kind = kind

    def refuse(self, dataflow: str, nodes: Sequence[StageNode]) -> None:
        """Do nothing: this engine runs no SQL; a Python function replaces it or the call fails."""

    def execute(self, plan: RunPlan, task: TaskPlan) -> list[TaskReport]:
        """Run the same task code as Spark's workers."""
        return self.work(plan, task)()

    def work(self, plan: RunPlan, task: TaskPlan) -> Callable[[], list[TaskReport]]:
        """Return the function, to be called in any process, that runs every task of a plan."""
        require_no_spark(plan.node.name, task.spec)
        shares = None
        if task.spec.record_wise:
            shares = record_shares(plan, plan.slots_of(self.slots), task.limits)
        return partial(_run_tasks, self._kind, task, shares)

    def warm(self) -> None:
        """Do nothing: no process is started."""

    def waits_for(self) -> str:
        """Return `""`: there is nothing to start."""
        return ""

    def cancel(self, run: str) -> None:
        """Do nothing: a task here cannot be interrupted."""

    def starved(self, runs: Collection[str]) -> Collection[str]:
        """Return no runs: a run never waits, since it uses its caller's thread."""
        del runs
        return ()

    def forget(self, folder: str) -> None:
        """Do nothing: nothing is cached."""

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def _run_tasks(
    kind: type[StageTask], task: TaskPlan, shares: Sequence[list[InputShare]] | None
) -> list[TaskReport]:
    """Run all tasks, one after the other; `shares` are those of a record-wise stage."""
    if shares is not None:
        runs = (kind(task, i, "0").run_shares(share) for i, share in enumerate(shares))
    else:
        runs = (kind(task, part, "0").run_arranged() for part in range(task.tasks))
    return [*(report for run in runs for report in run), JobLane(Lane.LOCAL)]
