"""Plan cache: Spark plans that are made once and run again for later runs of a stage.

Analysis, optimisation and code generation take Spark longer than the work of a small run, and
newly generated code runs slowly until the JIT compiler has optimised it. A plan whose leaves are
Python tasks names no file, so the next run can use it too.

Guaranteed: a plan is cached only if running it again computes everything again (`runs_again`):
within a plan, Spark keeps the results of shuffles, broadcasts and subqueries, and the time at which
it was made. The job of each run tells the leaves what to read (`cbp.engine.spark.sql.tasks`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

__all__ = ["KeptPlan", "runs_again"]

_LEAVES = {"Range", "LocalRelation", "OneRowRelation"}
_NODES = {
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
_OTHER_NEXT_TIME = re.compile(
    r"\b(cur\w*|now|today|tomorrow|yesterday|getdate|local\w*|unix_\w+|input_file\w*|rand\w*|uuid|shuffle)\b",
    re.IGNORECASE,
)
"""Words in queries that may make a plan depend on the clock or on chance; also similar names."""


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """A cached plan.

    Attributes:
        made_for: Everything that the plan depends on; the key of the cache.
        frame: The plan; its rows are what the settling task reports.
    """

    made_for: tuple[Any, ...]
    frame: DataFrame


def runs_again(frame: DataFrame, queries: Iterable[str]) -> bool:
    """Tell whether running the frame's plan again computes everything again.

    Args:
        queries: The texts of the queries that the frame was made from.
    """
    if any(map(_OTHER_NEXT_TIME.search, queries)):
        return False
    execution = frame._jdf.queryExecution()
    analyzed = execution.analyzed()
    leaves = {leaf.nodeName() for leaf in _each(analyzed.collectLeaves())}
    return (
        not analyzed.subqueriesAll().length()
        and leaves <= _LEAVES
        and _kinds(execution.executedPlan()) <= _NODES
    )


def _kinds(plan: Any) -> set[str]:
    found = {plan.getClass().getSimpleName()}
    return found.union(*(_kinds(child) for child in _each(plan.children())))


def _each(sequence: Any) -> Iterable[Any]:
    return (sequence.apply(at) for at in range(sequence.length()))
