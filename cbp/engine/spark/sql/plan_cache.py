"""Plan cache: Spark plans that are made once and run again for later runs of a stage.

Planning takes Spark longer than the work of a small run. A plan whose leaves are Python tasks names
no file, so the next run can use it too.

Guaranteed: a plan is cached only if running it again computes everything again (`runs_again`):
within a plan, Spark keeps the results of shuffles, broadcasts and subqueries, the time at which it
was made, and seeds of random numbers (`cbp.engine.spark.sql.determinism`). The leaves find what to
read in the job of each run (`cbp.engine.spark.sql.sql_tasks`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from cbp.engine.spark.sql.catalyst import each, kinds_of
from cbp.engine.spark.sql.determinism import has_moment, is_deterministic

_LEAVES = {"Range", "LocalRelation", "OneRowRelation"}
_NODES = {
    "CartesianProductExec",
    "CoalesceExec",
    "ExpandExec",
    "FilterExec",
    "GenerateExec",
    "HashAggregateExec",
    "InputAdapter",
    "LocalTableScanExec",
    "MapInArrowExec",
    "ObjectHashAggregateExec",
    "OneRowRelationExec",
    "ProjectExec",
    "RangeExec",
    "ShuffledHashJoinExec",
    "SortAggregateExec",
    "SortExec",
    "SortMergeJoinExec",
    "UnionExec",
    "WholeStageCodegenExec",
    "WindowExec",
}


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """A cached plan, whose rows are reports of its tasks, and its key: all that it depends on."""

    made_for: tuple[Any, ...]
    frame: DataFrame


def runs_again(frame: DataFrame, queries: Iterable[str]) -> bool:
    """Return whether another execution of the frame's plan computes everything again."""
    execution = frame._jdf.queryExecution()
    analyzed = execution.analyzed()
    leaves = {leaf.nodeName() for leaf in each(analyzed.collectLeaves())}
    return (
        not analyzed.subqueriesAll().length()
        and leaves <= _LEAVES
        and is_deterministic(frame.sparkSession, analyzed)
        and not any(has_moment(frame.sparkSession, query) for query in queries)
        and kinds_of(execution.executedPlan()) <= _NODES
    )
