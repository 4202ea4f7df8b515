"""Reads the options of a translator's declarations: schemas, names of columns, closeness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn, cast

from cbp.errors import DefinitionError, Mistake, text_of
from cbp.errors.message_limits import shortened
from cbp.model.dataflow.stage import Computed
from cbp.model.flow.attributes import attribute
from cbp.model.flow.schema import DataType, Schema
from cbp.sdk.declare import Output, State, place_of_attribute

_SHOWN = 100
"""Maximum number of characters of a wrong value that a message shows."""


class OptionReader:
    """Reads options of the declarations of one class.

    Each method raises `DefinitionError` if the author made a mistake.
    """

    def __init__(self, class_: type, place: str) -> None:
        self._class, self.place = class_, place

    def schema(self, name: str, text: object) -> Schema:
        """Return the schema of an attribute, from its DDL text."""
        if not isinstance(text, str):
            shown = shortened(text_of(text, repr), _SHOWN)
            message = f"the schema must be DDL text, such as 'url STRING', got {shown}"
            self.fail("schema_invalid", name, message)
        try:
            return Schema.parse(text, where=f"{self._class.__name__}.{name}")
        except DefinitionError as error:
            place = place_of_attribute(self._class, name) or self.place
            raise DefinitionError(*(replace(one, place=place) for one in error.mistakes)) from None

    def columns(
        self, name: str, option: str, value: str | Computed | None, schema: Schema
    ) -> tuple[str, ...] | Computed | None:
        """Return the columns that an option names, in order; a `by(...)` is returned unchanged."""
        if value is None or isinstance(value, Computed):
            return value
        if not isinstance(cast(object, value), str):
            self.fail(f"{option}_invalid", name, _takes(option, value, schema))
        columns = tuple(part.strip() for part in value.split(","))
        if option == "route_by" and len(set(columns)) < len(columns):
            message = f"route_by={value!r} names a column twice; name each column once"
            self.fail("route_by_invalid", name, message)
        for column in columns:
            if column not in schema:
                has = ", ".join(schema.names)
                self.fail(f"{option}_unknown", name, f"there is no column {column!r}; use {has}")
        return columns

    def plain(self, name: str, option: str, value: str | None, schema: Schema) -> tuple[str, ...]:
        """Return the columns that an option names; the option does not take `by(...)`."""
        if value is not None and not isinstance(cast(object, value), str):
            message = f"{option} takes names of columns, such as 'a, b'; got {value!r}"
            advice = "store a computed value in a column first"
            self.fail(f"{option}_invalid", name, f"{message}; {advice}")
        columns = self.columns(name, option, value, schema)
        return columns if isinstance(columns, tuple) else ()

    def check_types(self, name: str, types: tuple[DataType, ...], key: Schema) -> None:
        """Check that an input is routed by the types of the key."""
        if types != tuple(column.type for column in key.fields):
            came = ", ".join(map(str, types))
            message = (
                f"route_by gives ({came}), but the key is ({key}); give columns with the types of "
                "the key"
            )
            self.fail("route_by_type", name, message)

    def closeness(
        self, name: str, declared: Output | State, schema: Schema, key: Sequence[str]
    ) -> tuple[float, tuple[str, ...]]:
        """Return how closely records are compared: the tolerance, and the columns left out."""
        columns = self.plain(name, "not_compared", declared.not_compared, schema)
        for column in columns:
            if column in key:
                message = f"not_compared names {column!r}, which is part of the key"
                self.fail("not_compared_invalid", name, f"{message}; name other columns")
        try:
            is_tolerance = 0 <= declared.tolerance < 1
        except (TypeError, ValueError):  # it is no number
            is_tolerance = False
        if not is_tolerance:
            message = f"tolerance={declared.tolerance!r}; give a number of at least 0 and below 1"
            self.fail("tolerance_invalid", name, message)
        if declared.tolerance and not any(
            column.name not in {*key, *columns} and _floats(column.type) for column in schema.fields
        ):
            message = (
                f"tolerance={declared.tolerance!r}, but no compared column has floats; remove "
                "tolerance"
            )
            self.fail("tolerance_invalid", name, message)
        return declared.tolerance, columns

    def fail(self, code: str, name: str, message: str) -> NoReturn:
        """Raise the error for a mistake in an attribute; `name` is `""` for the class itself."""
        where = f"{self._class.__name__}.{name}" if name else self._class.__name__
        place = place_of_attribute(self._class, name) or self.place
        raise DefinitionError(Mistake(code, where, message, place))


def _takes(option: str, value: object, schema: Schema) -> str:
    """Return a description of valid values of an option, with columns of its schema."""
    names = schema.names[:2]
    if isinstance(value, list | tuple) and value and all(map(schema.names.__contains__, value)):
        names = tuple(value)
    key = ", ".join(str(schema[name].type) for name in names)
    given = ", ".join(f"record.{attribute(name)}" for name in names)
    computed = f"({given})" if len(names) > 1 else given
    columns = f"{option}={', '.join(names)!r}"
    if len(names) > 1:
        columns = f"all columns in one string, {columns}"
    return (
        f"write {columns}, or let a function compute the value, {option}=by(lambda record: "
        f"{computed}, {key!r}); got {option}={text_of(value, repr)[:_SHOWN]}"
    )


def _floats(type_: DataType) -> bool:
    """Return whether values of a type are floating-point numbers or contain any."""
    return type_.kind in ("FLOAT", "DOUBLE") or any(map(_floats, type_.arguments))
