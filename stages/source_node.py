"""The node at which all paths of a stage begin: an attribute that is checked when it is set.

A value of another type equals no node, so the stage would silently have no results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from cbp import Schema
from cbp.errors import DefinitionError, Mistake

_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


_IS_OF: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "STRING": (lambda value: isinstance(value, str), "a text"),
    "BINARY": (lambda value: isinstance(value, bytes), "bytes"),
    "BOOLEAN": (lambda value: isinstance(value, bool), "true or false"),
    "DOUBLE": (_is_number, "a number"),
    "FLOAT": (_is_number, "a number"),
    "DATE": (
        lambda value: isinstance(value, date) and not isinstance(value, datetime),
        "a datetime.date, in a dataflow that is written in Python",
    ),
    "TIMESTAMP": (
        lambda value: isinstance(value, datetime) and value.tzinfo is not None,
        "a datetime.datetime with a time zone, in a dataflow that is written in Python",
    ),
}
"""For each type of nodes: whether a value fits, and what to give instead."""


def _has_scale(value: Any, scale: int) -> bool:
    """Return whether a value is a number with at most this many digits after the point."""
    if not isinstance(value, Decimal) and not _is_number(value):
        return False
    number = Decimal(value)
    return number.is_finite() and number == round(number, scale)


class SourceNode:
    """A node of the stage's key, such as `_source` of `Reachable`.

    Containers are accepted: they are not a node, but can have the nodes of a stage with several.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, stage: Any, owner: type | None = None) -> Any:
        if stage is None:
            return self
        if self._name not in vars(stage):
            raise AttributeError(self._name)
        return vars(stage)[self._name]

    def __set__(self, stage: Any, value: Any) -> None:
        """Keep the node; raise `DefinitionError` if it is of another type than nodes are."""
        if not isinstance(value, list | tuple | set | frozenset | dict):
            _require_node(stage, value)
        vars(stage)[self._name] = value


def _require_node(stage: Any, value: Any) -> None:
    try:
        (field,) = Schema.parse(stage.key).fields
    except DefinitionError:  # the type of nodes is wrong, which is found with its place
        return
    kind = field.type.kind
    if kind in _BITS:
        end = 1 << (_BITS[kind] - 1)
        fits = _is_number(value) and -end <= value < end and value == int(value)
        expected = f"a whole number of {_BITS[kind]} bits"
    elif kind == "DECIMAL":
        fits = _has_scale(value, field.type.scale)
        expected = f"a number with at most {field.type.scale} digits after the point"
    else:
        is_of, expected = _IS_OF.get(kind, (lambda _: True, ""))
        fits = is_of(value)
    if not fits:
        message = (
            f"{value!r} is not a {field.type}, the type of the nodes, so no path can begin there: "
            f"give {expected}, or declare the type of the nodes (parameter node)"
        )
        where = f"{type(stage).__name__}.source"
        raise DefinitionError(Mistake("parameter_invalid", where, message))
