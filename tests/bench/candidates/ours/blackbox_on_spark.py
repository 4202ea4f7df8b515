"""The black-box mode on Spark: every run reads, shuffles, sorts and writes the whole state.

The tasks that read a record for several groups copy it for each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from cbp.engine.interface.runs import RunPlan
from cbp.engine.spark.bucket_shuffle import shuffled
from cbp.engine.spark.spark_executor import SparkExecutor
from cbp.engine.spark.tasks import RESULT, reported, task_identity
from cbp.engine.task.reports import JobLane, TaskReport, encode
from cbp.engine.task.task_plan import TaskPlan
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.plan.spark_or_worker import Lane
from tests.bench.candidates.ours.blackbox import (
    BlackboxTask,
    moves_nothing_else,
    require_all_state,
    require_plain,
    with_state_as_input,
)

__all__ = ["SparkBlackboxExecutor"]


class SparkBlackboxExecutor(SparkExecutor):
    """Carries out the tasks of a run on Spark, state included; see `blackbox.py`.

    Args:
        spark: The session.
        replicates: See `with_state_as_input`.
    """

    def __init__(self, spark: Any, *, replicates: bool = True) -> None:
        super().__init__(spark)
        self._replicates = replicates

    def refuse(self, dataflow: str, nodes: Sequence[StageNode]) -> None:
        """Raise as the session's executor does, for translators in SQL, and for loops in a run."""
        require_plain(dataflow, nodes)
        super().refuse(dataflow, nodes)

    def execute(self, plan: RunPlan, task: TaskPlan) -> list[TaskReport]:
        """Run the job, and check that no state record was lost on the way."""
        # A task that also runs the next stage (`then`) would not read all state of that stage.
        task = replace(task, then=None)
        if moves_nothing_else(task):
            return super().execute(plan, task)
        reports = self.run_job(plan, partial(self._wide_bodies, plan, task))
        require_all_state(task, reports)
        return reports

    def _wide_bodies(self, plan: RunPlan, task: TaskPlan) -> list[str]:
        """Run the job that shuffles state too; return what its tasks reported, as JSON texts."""
        wide_plan, wide = with_state_as_input(plan, task, replicates=self._replicates)

        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            part, attempt = task_identity()
            yield from reported(BlackboxTask(wide, part, attempt).run(batches))

        frame = shuffled(self.spark, wide_plan, wide).mapInArrow(run, RESULT)
        return [*(row.body for row in frame.collect()), encode([JobLane(Lane.SPARK)])]
