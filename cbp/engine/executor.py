"""Who carries out the tasks of a run: what is expected of them, and the one without Spark.

Guaranteed: every executor runs the same task code (`cbp.engine.task`) on the same files, so
that results do not depend on which it is (tests/cbp/engine/test_direct.py,
tests/spark/test_spark_engine.py).
Absent on purpose: what a task is given (`cbp.engine.planning`), and what becomes of its
descriptors (`cbp.engine.preparing`). The executor on Spark is in `cbp.engine.spark`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from cbp.engine.base import RunPlan
from cbp.engine.limits import require_no_spark
from cbp.engine.records import record_shares
from cbp.engine.task import StageTask
from cbp.engine.taskplan import TaskPlan
from cbp.model.dataflow import StageNode

__all__ = ["Executor", "LocalExecutor"]


class Executor(Protocol):
    """Carries out the tasks of one run; safe to call from several threads."""

    @property
    def slots(self) -> int:
        """Tasks that run at the same time."""
        ...

    @property
    def arranged_max(self) -> tuple[int, int] | None:
        """Records times tasks, and bytes, up to which a run is not shuffled; `None`: never is."""
        ...

    def refuse(self, dataflow: str, nodes: Sequence[StageNode]) -> None:
        """Raise `DataflowInvalidError` for what it cannot execute; cheap when asked again."""
        ...

    def execute(self, plan: RunPlan, task: TaskPlan) -> list[dict[str, Any]]:
        """Run every task of a plan and return all their descriptors.

        A task's rows count once, whatever retries and speculation do.
        """
        ...

    def cancel(self, run: str) -> None:
        """Stop the tasks of a run; `execute` then raises `RunCancelledError`."""
        ...

    def starved(self, runs: Collection[str]) -> Collection[str]:
        """Return those of these runs that have tasks to do at this moment, and do none."""
        ...

    def forget(self, folder: str) -> None:
        """Drop what is kept for a folder's stages."""
        ...

    def close(self) -> None:
        """Release what the executor holds."""
        ...


class LocalExecutor:
    """Carries out tasks one after the other in this process, without Spark.

    Args:
        kind: What a task is.
    """

    slots = 2
    arranged_max = None

    def __init__(self, kind: type[StageTask] = StageTask) -> None:
        self._kind = kind

    def refuse(self, dataflow: str, nodes: Sequence[StageNode]) -> None:
        """Do nothing: what is computed by SQL has a function too, or fails as it is called."""

    def execute(self, plan: RunPlan, task: TaskPlan) -> list[dict[str, Any]]:
        """Run the same task code as Spark's workers."""
        require_no_spark(plan.node.name, task.spec)
        if task.spec.record_wise:
            work = record_shares(plan, plan.slots_of(self.slots))
            runs = (self._kind(task, i, "0").run_shares(share) for i, share in enumerate(work))
        else:
            runs = (self._kind(task, part, "0").run_arranged() for part in range(task.tasks))
        return [descriptor for run in runs for descriptor in run]

    def cancel(self, run: str) -> None:
        """Do nothing: a task here cannot be interrupted."""

    def starved(self, runs: Collection[str]) -> Collection[str]:
        """Return none: a run has its caller's thread."""
        del runs
        return ()

    def forget(self, folder: str) -> None:
        """Do nothing: nothing is kept."""

    def close(self) -> None:
        """Hold nothing, release nothing."""
