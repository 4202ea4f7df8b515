"""The black-box mode on Spark: state is read, shuffled, sorted and written by every run.

What several groups get is copied for each of them by the tasks that read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from cbp.engine.base import RunPlan
from cbp.engine.blackbox import (
    BlackboxTask,
    moves_nothing_else,
    require_all_state,
    with_state_as_input,
)
from cbp.engine.limits import require_python
from cbp.engine.spark.executor import SparkExecutor
from cbp.engine.spark.increments import shuffled
from cbp.engine.spark.work import RESULT, reported, task_identity
from cbp.engine.taskplan import TaskPlan
from cbp.model.dataflow import StageNode

__all__ = ["SparkBlackboxExecutor"]


class SparkBlackboxExecutor(SparkExecutor):
    """Carries out the tasks of a run on Spark, state included; see `cbp.engine.blackbox`."""

    def refuse(self, dataflow: str, nodes: Sequence[StageNode]) -> None:
        """Raise for keys in SQL that Spark does not take, and for translators in SQL."""
        require_python(dataflow, nodes)
        super().refuse(dataflow, nodes)

    def execute(self, plan: RunPlan, task: TaskPlan) -> list[dict[str, Any]]:
        """Run the job, and check that no state record was lost on the way."""
        # A task that went on with the stage behind it would not read all of its state.
        descriptors = super().execute(plan, replace(task, then=None))
        if not moves_nothing_else(task):
            require_all_state(task, descriptors)
        return descriptors

    def _bodies(self, plan: RunPlan, task: TaskPlan) -> list[str]:
        if moves_nothing_else(task):
            return super()._bodies(plan, task)
        wide_plan, wide = with_state_as_input(plan, task)

        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            part, attempt = task_identity()
            yield from reported(BlackboxTask(wide, part, attempt).run(batches))

        frame = shuffled(self.spark, wide_plan, wide).mapInArrow(run, RESULT)
        return [row.body for row in frame.collect()]
