"""Tells whether Spark computes the same from the same records whenever it runs a plan; by Catalyst.

Three things make a plan depend on the moment or on chance. Spark answers each of them:

    rand(), uuid(), input_file_name()    `QueryPlan.deterministic`
    now(), current_date, current_user()  the tree pattern `CURRENT_LIKE`
    CAST('now' AS TIMESTAMP)             the rule `SpecialDatetimeValues` changes the plan
    TIMESTAMP 'now', DATE 'today'        the text of the literal is a special value

The last one is not in an analysed plan any more, so the query is parsed again. Only a query with a
quotation mark can have one.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from cbp.engine.spark.sql.catalyst import active, expressions_of, kind_of

__all__ = ["has_moment", "is_repeatable"]

_QUOTES = "'\""
_EAGER = "spark.sql.parser.eagerEvalOfUnresolvedInlineTable"
_TIMED = ("date", "timestamp", "timestamp_ntz", "time")


def is_repeatable(session: SparkSession, analyzed: Any) -> bool:
    """Tell whether an analysed plan has no chance, no clock and no session in it.

    Args:
        session: The session of the plan.
        analyzed: Spark's analysed logical plan.
    """
    catalyst = _catalyst(session)
    if not analyzed.deterministic():
        return False
    if analyzed.containsPattern(catalyst.trees.TreePattern.CURRENT_LIKE()):
        return False
    replaced = catalyst.optimizer.ReplaceExpressions.apply(analyzed)  # to_date('now') is a cast
    return bool(catalyst.optimizer.SpecialDatetimeValues.apply(replaced).fastEquals(replaced))


def has_moment(session: SparkSession, query: str) -> bool:
    """Tell whether a query has a literal for a moment, such as `TIMESTAMP 'now'`.

    `epoch` counts as one too.
    """
    if not any(mark in query for mark in _QUOTES):
        return False
    spark: Any = session
    parser = spark._jsparkSession.sessionState().sqlParser()
    return any(
        _is_moment(session, parser, node)
        for node in expressions_of(_parsed(session, parser, query))
        if kind_of(node) == "Literal" and str(node.dataType().typeName()) in _TIMED
    )


def _parsed(session: SparkSession, parser: Any, query: str) -> Any:
    """Return the plan of a query as it is written; the values of `VALUES` are still literals."""
    before = session.conf.get(_EAGER, "true")
    session.conf.set(_EAGER, "false")
    try:
        with active(session):  # the parser reads its settings
            return parser.parsePlan(query)
    finally:
        session.conf.set(_EAGER, str(before))


def _is_moment(session: SparkSession, parser: Any, literal: Any) -> bool:
    """Tell whether the text that a literal was parsed from names a moment."""
    text = _text_of(literal)
    start = min((text.index(mark) for mark in _QUOTES if mark in text), default=None)
    if start is None:
        return True  # where it comes from is unknown
    value = str(parser.parseExpression(text[start:]).value().toString())
    times = _catalyst(session).util.DateTimeUtils
    return bool(times.convertSpecialDate(value, times.getZoneId("UTC")).isDefined())


def _text_of(node: Any) -> str:
    """Return the part of the query that a node was parsed from; `""` if Spark does not know."""
    origin = node.origin()
    places = (origin.sqlText(), origin.startIndex(), origin.stopIndex())
    if not all(place.isDefined() for place in places):
        return ""
    text, start, stop = (place.get() for place in places)
    return str(text)[start : stop + 1]


def _catalyst(session: SparkSession) -> Any:
    spark: Any = session
    return spark._jvm.org.apache.spark.sql.catalyst
