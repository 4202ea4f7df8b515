"""Bags: the records of one input that a join keeps, updated by signed changes.

With a key, the bag has at most one record of each key. Without one, equal records are one entry
with a count: a record that was inserted twice is gone once it was deleted twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import nan
from typing import Any

from cbp import Input, Schema, State
from cbp.errors import DefinitionError, Mistake

Name = tuple[Any, ...]
Record = tuple[Any, ...]
"""The columns of a record, and its number of copies."""


def names_of(text: str) -> list[str]:
    """Return the names in a text that separates them by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def same(values: Iterable[Any]) -> Name:
    """Return values that can be compared by `==`: every NaN becomes the same object."""
    return tuple([value if value == value else nan for value in values])


def ordered(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return a sort key of the values of columns: nulls first, ascending, NaN last."""
    return tuple([_ordered(value) for value in values])


def _ordered(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    return (1, value) if value == value else (2,)


def column_at(columns: Schema, name: str, where: str, kind: str = "") -> int:
    """Return the place of a column that the parameter `where`, such as `windows.at`, names.

    Raises:
        DefinitionError: There is no such column, or its type is not the given `kind`.
    """
    if name not in columns:
        message = f"there is no column {name!r}; name one of {', '.join(columns.names)}"
        raise DefinitionError(Mistake("parameter_invalid", where, message))
    type_ = columns[name].type
    if kind and type_.kind != kind:
        message = f"{name} is {type_}; name a column of type {kind}"
        raise DefinitionError(Mistake("parameter_invalid", where, message))
    return columns.index(name)


class Bag:
    """The kept records of one input.

    Args:
        schema: DDL of the records; no column is named `sign` or `copies`.
        route: The columns of the group's key.
        key: The key of the view that is read; if empty, records are counted.
        first: A column that precedes the key in the order of a group's records.
        where: The parameter with the schema, for errors.

    Attributes:
        second: The columns that identify a record within its group.
    """

    def __init__(
        self, schema: str, route: list[str], key: str = "", first: str = "", where: str = "schema"
    ) -> None:
        self.columns = Schema.parse(schema, where=where)
        self.counted = not key
        for name in [*route, *names_of(key)]:
            column_at(self.columns, name, where)
        chosen = dict.fromkeys([first, *names_of(key)] if key else [first, *self.columns.names])
        self.second = [name for name in chosen if name and name not in route]
        self._places = [self.columns.index(name) for name in self.second]
        self._schema, self._route = schema, ", ".join(route)

    def input(self) -> Input:
        """Return the declaration of the input of changes."""
        return Input(f"{self._schema}, sign INT", route_by=self._route, changes="signed")

    def state(self, *, keep: bool = True) -> State:
        """Return the declaration of the state of the records."""
        schema = f"{self._schema}, copies BIGINT"
        key = ", ".join([self._route, *self.second])
        return State(schema, keep=True, key=key) if keep else State(schema)

    def name(self, row: Any) -> Name:
        """Return the values of the columns `second`, which identify a record within its group."""
        return same([row[i] for i in self._places])

    def apply(self, rows: Iterable[Any], kept: Any, put: Any) -> dict[Name, Record | None]:
        """Apply the changes to the state; return the new records by name, `None` if deleted.

        `rows` have their sign at the end; `kept` is the state before the call.
        """
        changes: dict[Name, Record | None] = {}
        for row in rows:
            name, sign = self.name(row), row[-1]
            copies = 1 if sign > 0 else 0
            if self.counted:
                before = changes[name] if name in changes else kept.get(*name)
                copies = sign + (before[-1] if before else 0)
            changes[name] = (*row[:-1], copies) if copies else None
        emit(changes, put)
        return changes

    def all(
        self, kept: Iterable[Any], changes: dict[Name, Record | None]
    ) -> Iterator[tuple[Name, Record | None]]:
        """Yield all present records with their names; deleted ones as `None`."""
        yield from changes.items()
        for row in kept:
            if (name := self.name(row)) not in changes:
                yield name, tuple(row)


def emit(changes: dict[Name, Record | None], put: Any) -> None:
    """Put the records of a kept state or view, and delete removed ones."""
    for name, record in changes.items():
        if record is None:
            put.delete(*name)
        else:
            put(*record)
