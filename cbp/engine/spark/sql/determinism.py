"""Finds, by Catalyst, whether a plan gives the same result whenever Spark runs it on equal records.

A plan can depend on the time or on chance in four ways. Spark has an answer for each of them:

    rand(), uuid(), input_file_name()    `QueryPlan.deterministic`
    now(), current_date, current_user()  the tree pattern `CURRENT_LIKE`
    CAST('now' AS TIMESTAMP)             the rule `SpecialDatetimeValues` changes the plan
    TIMESTAMP 'now', DATE 'today'        the text of the literal is a special value

A literal of the last kind is no longer in an analysed plan, so the query is parsed again. Only a
query with a quotation mark can have such a literal.

`is_deterministic` and `has_moment` err on the safe side: at worst, a plan is made again in vain.
`differences` and `moments` name only what certainly differs, since a query is refused for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import SparkSession

from cbp.engine.spark.sql.catalyst import active, each, expressions_of, kind_of

_QUOTES = "'\""
_EAGER = "spark.sql.parser.eagerEvalOfUnresolvedInlineTable"
_TIMED = ("date", "timestamp", "timestamp_ntz", "time")
_NO_ORIGINS = ("AggregateFunction", "PlanExpression")
_FIXED = "epoch"


def is_deterministic(session: SparkSession, analyzed: Any) -> bool:
    """Return whether an analysed plan depends on no random number, clock or session."""
    catalyst = _catalyst(session)
    if not analyzed.deterministic():
        return False
    if analyzed.containsPattern(catalyst.trees.TreePattern.CURRENT_LIKE()):
        return False
    replaced = catalyst.optimizer.ReplaceExpressions.apply(analyzed)  # to_date('now') is a cast
    return bool(catalyst.optimizer.SpecialDatetimeValues.apply(replaced).fastEquals(replaced))


def differences(session: SparkSession, analyzed: Any) -> tuple[str, ...]:
    """Return the SQL names of parts whose result differs when a plan is run again.

    Aggregates that depend on the order of records, such as `collect_list`, are not named: an
    expression over them, such as `sort_array(collect_list(url))`, can be the same in every
    order.
    """
    plans = [analyzed, *each(analyzed.subqueriesAll())]
    return tuple(dict.fromkeys(name for plan in plans for name in _differing(session, plan)))


def moments(session: SparkSession, queries: Iterable[str]) -> tuple[str, ...]:
    """Return the literals of queries that depend on the current time, such as `'now'`."""
    texts = [text for query in queries for text in _moments(session, query)]
    return tuple(repr(text) for text in dict.fromkeys(texts) if text and _is_moving(text))


def has_moment(session: SparkSession, query: str) -> bool:
    """Return whether a query has a literal for a moment, `epoch` and unknown ones included."""
    return any(True for _ in _moments(session, query))


def _differing(session: SparkSession, plan: Any) -> Iterator[str]:
    """Yield the names of nondeterministic parts of a plan, without its subqueries."""
    catalyst = _catalyst(session)
    current = catalyst.trees.TreePattern.CURRENT_LIKE()
    if not plan.deterministic() or plan.containsPattern(current):
        for expression in _tops(plan):
            yield from _origins(expression, current)
    rule = catalyst.optimizer.SpecialDatetimeValues
    replaced = catalyst.optimizer.ReplaceExpressions.apply(plan)
    if not rule.apply(replaced).fastEquals(replaced):
        yield from map(repr, filter(_is_moving, _cast_moments(session, replaced)))


def _tops(plan: Any) -> Iterator[Any]:
    """Yield the expressions of a plan's nodes, without those that they consist of."""
    yield from each(plan.expressions())
    for below in each(plan.children()):
        yield from _tops(below)


def _origins(expression: Any, current: Any) -> Iterator[str]:
    """Yield the names of the innermost functions that make an expression differ."""
    if expression.deterministic() and not expression.containsPattern(current):
        return
    below = [
        child
        for child in each(expression.children())
        if not child.deterministic() or child.containsPattern(current)
    ]
    for child in below:
        yield from _origins(child, current)
    if not below and not _is_a(expression, _NO_ORIGINS):
        yield f"{expression.prettyName()}()"


def _is_a(node: Any, names: Iterable[str]) -> bool:
    kind = node.getClass()
    while kind is not None:
        if kind.getSimpleName() in names:
            return True
        kind = kind.getSuperclass()
    return False


def _cast_moments(session: SparkSession, plan: Any) -> Iterator[str]:
    """Yield the texts of constant casts that name a moment, such as `CAST('now' AS DATE)`."""
    for node in expressions_of(plan):
        if kind_of(node) == "Cast" and str(node.dataType().typeName()) in _TIMED:
            child = node.child()
            if child.foldable() and str(child.dataType().typeName()) == "string":
                text = str(child.eval(None))
                if _is_special(session, text):
                    yield text


def _is_moving(moment: str) -> bool:
    return moment.strip().lower() != _FIXED


def _moments(session: SparkSession, query: str) -> Iterator[str]:
    """Yield the texts of a query's literals for moments; `""` for one from an unknown place."""
    if not any(mark in query for mark in _QUOTES):
        return
    spark: Any = session
    parser = spark._jsparkSession.sessionState().sqlParser()
    for node in expressions_of(_parsed(session, parser, query)):
        if kind_of(node) == "Literal" and str(node.dataType().typeName()) in _TIMED:
            text = _written(parser, node)
            if text is None:
                yield ""
            elif _is_special(session, text):
                yield text


def _parsed(session: SparkSession, parser: Any, query: str) -> Any:
    """Return the plan of a query as it is written; the values of `VALUES` are still literals."""
    before = session.conf.get(_EAGER, "true")
    session.conf.set(_EAGER, "false")
    try:
        with active(session):  # the parser reads its settings
            return parser.parsePlan(query)
    finally:
        session.conf.set(_EAGER, str(before))


def _written(parser: Any, literal: Any) -> str | None:
    """Return the text between the quotation marks of a literal; `None` if it is not known."""
    text = _text_of(literal)
    start = min((text.index(mark) for mark in _QUOTES if mark in text), default=None)
    return None if start is None else str(parser.parseExpression(text[start:]).value().toString())


def _is_special(session: SparkSession, text: str) -> bool:
    """Return whether Spark takes a text for the name of a moment."""
    times = _catalyst(session).util.DateTimeUtils
    return bool(times.convertSpecialDate(text, times.getZoneId("UTC")).isDefined())


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
