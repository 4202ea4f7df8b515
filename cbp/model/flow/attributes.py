"""Column names as Python attributes, and the named tuple class of a flow's records.

If the name is a Python keyword, the attribute has a trailing underscore, as PEP 8 suggests:
`record.from_`, `out.totals(from_=1)`. The column's own name works in `getattr(record, "from")`,
`out.totals(**{"from": 1})`, Arrow tables, SQL and files.

    >>> record_class("links", ("from", "n"))("/a", 1)
    links(from_='/a', n=1)
"""

from __future__ import annotations

import keyword
from collections import namedtuple
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NoReturn


def attribute(column: str) -> str:
    """Return the Python attribute of a column."""
    return f"{column}_" if keyword.iskeyword(column) else column


@lru_cache(maxsize=1024)
def record_class(flow: str, columns: tuple[str, ...]) -> Any:
    """Return the named tuple class of a flow's records.

    The methods `count` and `index` of a tuple are hidden: without a column of that name, they
    raise an `AttributeError` like any other unknown name.
    """
    made: Any = namedtuple(flow, [attribute(column) for column in columns])  # type: ignore[misc]
    for name in ("count", "index"):
        if name not in columns:
            setattr(made, name, _Absent(name))
    for column in columns:
        if attribute(column) != column:
            setattr(made, column, vars(made)[attribute(column)])
    return made


class _Absent:
    """Descriptor that hides a tuple method from the attributes of a record."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, record: object, owner: type) -> NoReturn:
        message = f"{owner.__name__!r} object has no attribute {self._name!r}"
        raise AttributeError(message, name=self._name, obj=record)


def by_attribute(flow: str, columns: Sequence[str], given: dict[str, Any]) -> dict[str, Any]:
    """Rename values that were passed under a column's own name; `TypeError` if one came twice."""
    for column in columns:
        name = attribute(column)
        if name != column and column in given:
            if name in given:
                message = f"out.{flow}() got one column twice, as {column!r} and as {name!r}"
                raise TypeError(message)
            given[name] = given.pop(column)
    return given
