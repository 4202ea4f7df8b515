"""Merge a partial and a final aggregation of a Spark plan into one if no shuffle is between them.

Spark aggregates partially before a shuffle, and finally after it. A plan of one partition has no
shuffle, so every group is hashed, looked up and copied twice.

    Final(k, merge) <- Partial(k, update) <- child    =>    Complete(k, update) <- child

Guaranteed: the rows are those of Spark's own plan. An aggregation is left unchanged unless all its
functions are partial below and final above, over the same groups. Functions and groups are matched
by Catalyst's ids, fields by their names. With distinct functions, Spark has more than two steps;
steps that do not fit are left unchanged.
Not covered: plans of several partitions, and plans that are made for one run only.

Source: Spark's own rule of a later release, `CombineAdjacentAggregation` (SPARK-43317).
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from cbp.engine.spark.sql.catalyst import active, copied, each, fields_of, kind_of, seq

_AGGREGATES = {"HashAggregateExec", "ObjectHashAggregateExec", "SortAggregateExec"}
_CHANGED = {"groupingExpressions", "aggregateExpressions", "initialInputBufferOffset", "child"}
"""Fields that a merged aggregation changes; if Spark names them otherwise, nothing is merged."""


def combined(frame: DataFrame) -> DataFrame:
    """Return a frame of the same rows, whose plan is `combined_plan` and is made now."""
    session: Any = frame.sparkSession
    with active(session):
        rows = combined_plan(frame).execute()
    schema = frame._jdf.schema()
    made = session._jsparkSession.internalCreateDataFrame(rows, schema, False)
    return DataFrame(made, session)


def combined_plan(frame: DataFrame) -> Any:
    """Return Spark's plan of a frame, with adjacent partial and final aggregations merged."""
    session: Any = frame.sparkSession
    jvm = session._jvm
    planned = frame._jdf.queryExecution().sparkPlan()
    with active(session):
        of = jvm.org.apache.spark.sql.execution.QueryExecution
        plan: Any = of.prepareExecutedPlan(session._jsparkSession, _rebuilt(planned, jvm))
        return plan


def _rebuilt(node: Any, jvm: Any) -> Any:
    children = [_rebuilt(child, jvm) for child in each(node.children())]
    node = node.withNewChildren(seq(jvm, children))
    if not children or not _is_final_of(node, children[0]):
        return node
    return _merged(node, children[0], jvm)


def _merged(node: Any, below: Any, jvm: Any) -> Any:
    """Return a final aggregation that includes the work of the partial one below."""
    partial, groups = _functions(below), _groups(below)
    name = "org.apache.spark.sql.catalyst.expressions.aggregate.Complete$"
    complete = jvm.java.lang.Class.forName(name).getField("MODULE$").get(None)
    functions = [copied(partial[id_], mode=complete) for id_ in _functions(node)]
    return copied(
        node,
        groupingExpressions=seq(jvm, (groups[id_] for id_ in _groups(node))),
        aggregateExpressions=seq(jvm, functions),
        initialInputBufferOffset=0,  # the child returns plain records, without buffers
        child=below.child(),
    )


def _is_final_of(node: Any, child: Any) -> bool:
    if not (kind_of(node) == kind_of(child) and kind_of(node) in _AGGREGATES):
        return False
    above, below = _functions(node), _functions(child)
    return (
        set(fields_of(node)) >= _CHANGED
        and {_mode(one) for one in below.values()} <= {"Partial"}
        and {_mode(one) for one in above.values()} <= {"Final"}
        and above.keys() == below.keys()
        and _groups(node).keys() == _groups(child).keys()
    )


def _functions(node: Any) -> dict[str, Any]:
    """Return an aggregation's functions by the ids of their results."""
    return {str(one.resultId()): one for one in each(node.aggregateExpressions())}


def _groups(node: Any) -> dict[str, Any]:
    """Return an aggregation's grouping expressions by their ids."""
    return {str(one.exprId()): one for one in each(node.groupingExpressions())}


def _mode(function: Any) -> str:
    return str(function.mode().toString())
