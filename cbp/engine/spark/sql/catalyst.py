"""Access to Spark's plans in the JVM: trees, expressions and copies with other fields, by name.

Guaranteed: nothing here depends on the place of a field or a child in Spark's classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def active(session: Any) -> Iterator[None]:
    """Make a session active: new plan nodes of this thread use its settings."""
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


def each(sequence: Any) -> Iterator[Any]:
    """Yield the items of a sequence of Scala."""
    return (sequence.apply(at) for at in range(sequence.length()))


def seq(jvm: Any, items: Iterable[Any]) -> Any:
    """Return items as a sequence of Scala."""
    return jvm.PythonUtils.toSeq(list(items))


def kind_of(node: Any) -> str:
    """Return the name of a node's class, without its package."""
    return str(node.getClass().getSimpleName())


def kinds_of(plan: Any) -> set[str]:
    """Return the kinds of all nodes of a plan."""
    return {kind_of(plan)}.union(*(kinds_of(child) for child in each(plan.children())))


def expressions_of(plan: Any) -> Iterator[Any]:
    """Yield all expressions of a logical plan, of its subqueries and of its `WITH` clauses."""
    for expression in each(plan.expressions()):
        yield from _expressions_in(expression)
    for below in (*each(plan.children()), *each(plan.innerChildren())):
        yield from expressions_of(below)


def _expressions_in(expression: Any) -> Iterator[Any]:
    yield expression
    for child in each(expression.children()):
        yield from _expressions_in(child)


def fields_of(node: Any) -> list[str]:
    """Return the names of the fields of a node or an expression."""
    return [str(node.productElementName(at)) for at in range(node.productArity())]


def copied(node: Any, **changes: Any) -> Any:
    """Return a copy of a node or an expression with other values of some fields."""
    names = fields_of(node)
    if unknown := changes.keys() - set(names):
        message = f"{kind_of(node)} has no field {', '.join(sorted(unknown))}"
        raise AttributeError(message)
    values = (
        changes[name] if name in changes else node.productElement(at)
        for at, name in enumerate(names)
    )
    return node.copy(*values)
