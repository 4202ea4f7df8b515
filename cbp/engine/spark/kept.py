"""Plans of Spark that are made once, and run again on whatever each run reads.

Analysing, optimising and generating code take Spark longer than a small run's work, and the
Java compiler long to get used to. A plan whose leaves are Python tasks names no file, so the
plan of one run is that of the next.

Guaranteed: a plan is kept only if running it again computes everything again (`runs_again`):
Spark remembers the results of shuffles, broadcasts and subqueries within a plan, and what the
clock said when it was made. What its leaves read is their job's (`cbp.engine.spark.sqltasks`).
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
"""Words of queries by which the clock, or chance, may have come into a plan; or names like them."""


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """A plan that was made.

    Attributes:
        made_for: All that it depends on.
        frame: Its rows are what the settling task reports.
    """

    made_for: tuple[Any, ...]
    frame: DataFrame


def runs_again(frame: DataFrame, queries: Iterable[str]) -> bool:
    """Tell whether running the frame's plan once more computes all of it once more.

    Args:
        queries: It was made from these.
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
