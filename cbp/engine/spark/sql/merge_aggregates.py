"""Merge a partial and a final aggregation of a Spark plan into one if no shuffle is between them.

Spark aggregates twice: partially before a shuffle, and finally after it. A plan of one partition
has no shuffle, so one directly follows the other, and the final aggregation gets groups that are
complete already: every group is hashed, looked up and copied twice.

    Final(k, merge) <- Partial(k, update) <- child    =>    Complete(k, update) <- child

Guaranteed: the rows are those of Spark's own plan. An aggregation is left unchanged unless all its
functions are partial below and final above, in the same order, over the same groups. With distinct
functions, Spark has more than two steps; those that do not fit stay.
Not covered: plans of several partitions, and plans that are made for one run only.

Source: Spark's own rule of a later release, `CombineAdjacentAggregation` (SPARK-43317).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame

__all__ = ["combined", "combined_plan"]

_AGGREGATES = {"HashAggregateExec", "ObjectHashAggregateExec", "SortAggregateExec"}


def combined(frame: DataFrame) -> DataFrame:
    """Return a frame of the same rows whose plan is `combined_plan`.

    The plan is made now, with the current settings; each run of it computes everything again.
    """
    session: Any = frame.sparkSession
    with _active(session):
        rows = combined_plan(frame).execute()
    schema = frame._jdf.schema()
    made = session._jsparkSession.internalCreateDataFrame(rows, schema, False)
    return DataFrame(made, session)


def combined_plan(frame: DataFrame) -> Any:
    """Return Spark's plan of a frame, with adjacent partial and final aggregations merged."""
    session: Any = frame.sparkSession
    jvm = session._jvm
    planned = frame._jdf.queryExecution().sparkPlan()
    with _active(session):
        of = jvm.org.apache.spark.sql.execution.QueryExecution
        plan: Any = of.prepareExecutedPlan(session._jsparkSession, _rebuilt(planned, jvm))
        return plan


@contextmanager
def _active(session: Any) -> Iterator[None]:
    """Make a session the active one, whose settings new plan nodes of this thread use."""
    of = session._jvm.org.apache.spark.sql.classic.SparkSession
    before = of.getActiveSession()
    of.setActiveSession(session._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            of.setActiveSession(before.get())
        else:
            of.clearActiveSession()


def _rebuilt(node: Any, jvm: Any) -> Any:
    children = [_rebuilt(child, jvm) for child in _each(node.children())]
    node = node.withNewChildren(_seq(jvm, children))
    if not children or not _is_final_of(node, children[0]):
        return node
    below, complete = children[0], _complete(jvm)
    functions = [
        partial.copy(
            partial.aggregateFunction(),
            complete,
            partial.isDistinct(),
            partial.filter(),
            final.resultId(),
        )
        for partial, final in zip(_functions(below), _functions(node), strict=True)
    ]
    return node.copy(
        node.requiredChildDistributionExpressions(),
        node.isStreaming(),
        node.numShufflePartitions(),
        below.groupingExpressions(),
        _seq(jvm, functions),
        node.aggregateAttributes(),
        0,  # offset of the aggregation buffer in child rows: the child returns plain records
        node.resultExpressions(),
        below.child(),
    )


def _is_final_of(node: Any, child: Any) -> bool:
    """Tell whether an aggregation is the second half of the one below."""
    if not (_kind(node) == _kind(child) and _kind(node) in _AGGREGATES):
        return False
    above, below = _functions(node), _functions(child)
    groups = [expression.toAttribute() for expression in _each(child.groupingExpressions())]
    found = list(_each(node.groupingExpressions()))
    return (
        [_mode(one) for one in below] == ["Partial"] * len(above)
        and [_mode(one) for one in above] == ["Final"] * len(below)
        and [one.resultId() for one in above] == [one.resultId() for one in below]
        and [one.exprId() for one in found] == [one.exprId() for one in groups]
    )


def _functions(node: Any) -> list[Any]:
    return list(_each(node.aggregateExpressions()))


def _mode(function: Any) -> str:
    return str(function.mode().toString())


def _complete(jvm: Any) -> Any:
    name = "org.apache.spark.sql.catalyst.expressions.aggregate.Complete$"
    return jvm.java.lang.Class.forName(name).getField("MODULE$").get(None)


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _seq(jvm: Any, items: Iterable[Any]) -> Any:
    return jvm.PythonUtils.toSeq(list(items))


def _each(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(at) for at in range(sequence.length()))
