"""Values of records as Python holds them: checked against a type, and ordered.

`typed` turns what an author emitted into the one Python value that stands for it, or
refuses it; nothing is rounded, cut or guessed. `order_key` gives the total order in
which groups, records and state are presented: nulls first, then ascending, NaN last.

    >>> typed(3, DataType("DOUBLE"))
    3.0
    >>> typed(3.5, DataType("BIGINT"))
    Traceback (most recent call last):
    TypeError: expected an integer

Guarantees: the result shares no list or dict with the value that was given; applying
`typed` twice changes nothing (tests/cbp/engine/test_values.py). No Arrow, no Spark here.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np

from cbp.model.routing import KeyMismatch
from cbp.model.schema import DataType, Schema

__all__ = [
    "NAN",
    "Row",
    "bound_key",
    "order_key",
    "own_row",
    "row_order",
    "typed",
    "typed_key",
    "typed_row",
    "unify",
]

Row = tuple[Any, ...]

NAN = float("nan")
"""The one NaN that stands for all: a container finds it again by identity."""

_BOOLS = (bool, np.bool_)
_NUMBERS = (int, float, np.integer, np.floating)
_INT_BITS = {"BIGINT": 64, "INT": 32, "SMALLINT": 16, "TINYINT": 8}


def typed_row(values: Sequence[Any], schema: Schema) -> Row:
    """Return a record with every value in its declared type.

    Raises:
        TypeError: Naming the first wrong column, its declared type and the value.
    """
    return tuple(
        _typed_column(value, column.name, column.type, column.nullable)
        for value, column in zip(values, schema.fields, strict=True)
    )


def own_row(row: Row, schema: Schema) -> Row:
    """Return a record in its declared types that shares no list or dict with the given one.

    Args:
        row: In its declared types already.
    """
    nested = any(column.type.arguments for column in schema.fields)
    return typed_row(row, schema) if nested else row


def _typed_column(value: Any, name: str, type_: DataType, nullable: bool) -> Any:
    if value is None and nullable:
        return None
    try:
        if value is not None:
            return typed(value, type_)
    except (TypeError, ValueError, OverflowError) as exc:
        raise _refused(value, name, f"{type_}") from exc
    raise _refused(value, name, f"{type_} NOT NULL")


def _refused(value: Any, name: str, declared: str) -> TypeError:
    message = (
        f"column {name!r} is declared {declared}, got {repr(value)[:100]} ({type(value).__name__})"
    )
    return TypeError(message)


def typed_key(given: Any, types: Sequence[DataType]) -> Row:
    """Return a key, or what orders a record, in its declared types.

    Args:
        given: As an author's function gave it: a value, or a tuple of several.

    Raises:
        KeyMismatch: It is none; the error shows it.
    """
    values = (given,) if len(types) == 1 else given
    try:
        return tuple(typed(value, type_) for value, type_ in zip(values, types, strict=True))
    except (TypeError, ValueError, OverflowError) as exc:
        declared = ", ".join(map(str, types))
        message = f"a key is declared ({declared}), got {given!r}: {exc}"
        raise KeyMismatch(message) from exc


def bound_key(given: Any, key: Schema) -> Row:
    """Return the key that an author binds to an address, as keys are compared.

    Args:
        given: A value, or a tuple of one per column.
        key: The stage's.

    Raises:
        TypeError: It is none.
    """
    values = given if isinstance(given, tuple) else (given,)
    if len(values) != len(key):
        message = f"out.associate: the key is ({key}), got {given!r}"
        raise TypeError(message)
    return unify(typed_row(values, key))


def typed(value: Any, type_: DataType) -> Any:
    """Return a value in its declared type; null stays null.

    Raises:
        TypeError, ValueError, OverflowError: The value is not of this type.
    """
    if value is None:
        return None
    if type_.kind in _INT_BITS:
        return _integer(value, _INT_BITS[type_.kind])
    return _READERS[type_.kind](value, type_)


def _integer(value: Any, bits: int) -> int:
    if type(value) is not int and (isinstance(value, _BOOLS) or not hasattr(value, "__index__")):
        message = "expected an integer"
        raise TypeError(message)
    number = operator.index(value)
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        message = f"{number} has more than {bits} bits"
        raise OverflowError(message)
    return number


def _float(value: Any, type_: DataType) -> float:
    if isinstance(value, _BOOLS) or not isinstance(value, _NUMBERS):
        message = "expected a number"
        raise TypeError(message)
    number = float(value)
    if not math.isnan(number) and number != value:
        message = f"{value} cannot be represented exactly"
        raise OverflowError(message)
    if type_.kind == "FLOAT" and math.isfinite(number):
        (number,) = struct.unpack("<f", struct.pack("<f", number))
    return number


def _decimal(value: Any, type_: DataType) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        message = "expected an int or a Decimal"
        raise TypeError(message)
    sign, digits, exponent = Decimal(value).as_tuple()
    if not isinstance(exponent, int):
        message = f"{value} has no digits"
        raise TypeError(message)
    shift = exponent + type_.scale
    kept = (*digits, *(0,) * shift) if shift >= 0 else digits[:shift] or (0,)
    if any(digits[shift:] if shift < 0 else ()):
        message = f"{value} has more than {type_.scale} decimal places"
        raise OverflowError(message)
    kept = tuple(map(int, str(int("".join(map(str, kept))))))
    if len(kept) > type_.precision:
        message = f"{value} has more than {type_.precision} digits"
        raise OverflowError(message)
    return Decimal((sign if any(kept) else 0, kept, -type_.scale))


def _string(value: Any, _: DataType) -> str:
    _expect(value, str)
    value.encode()
    return str(value)


def _binary(value: Any, _: DataType) -> bytes:
    _expect(value, bytes, bytearray, memoryview)
    return bytes(value)


def _boolean(value: Any, _: DataType) -> bool:
    _expect(value, bool, np.bool_)
    return bool(value)


def _date(value: Any, _: DataType) -> date:
    if isinstance(value, datetime):
        message = "expected a date without a time"
        raise TypeError(message)
    _expect(value, date)
    return date(value.year, value.month, value.day)


def _timestamp(value: Any, _: DataType) -> datetime:
    _expect(value, datetime)
    aware: datetime = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return aware.astimezone(UTC)


def _array(value: Any, type_: DataType) -> list[Any]:
    _expect(value, list, tuple)
    return [typed(item, type_.arguments[0]) for item in value]


def _map(value: Any, type_: DataType) -> dict[Any, Any]:
    _expect(value, Mapping)
    if None in value:
        message = "a key of a MAP cannot be null"
        raise TypeError(message)
    of_key, of_value = type_.arguments
    return {typed(k, of_key): typed(v, of_value) for k, v in value.items()}


def _struct(value: Any, type_: DataType) -> dict[str, Any]:
    if isinstance(value, tuple) and len(value) == len(type_.names):
        value = dict(zip(type_.names, value, strict=True))
    _expect(value, Mapping)
    if unknown := [name for name in value if name not in type_.names]:
        message = f"{type_} has no field {unknown[0]!r}"
        raise TypeError(message)
    return {n: typed(value.get(n), t) for n, t in zip(type_.names, type_.arguments, strict=True)}


def _expect(value: Any, *classes: type) -> None:
    if not isinstance(value, classes):
        message = f"expected {' or '.join(c.__name__ for c in classes)}"
        raise TypeError(message)


_READERS: dict[str, Callable[[Any, DataType], Any]] = {
    "DOUBLE": _float,
    "FLOAT": _float,
    "DECIMAL": _decimal,
    "STRING": _string,
    "BINARY": _binary,
    "BOOLEAN": _boolean,
    "DATE": _date,
    "TIMESTAMP": _timestamp,
    "ARRAY": _array,
    "MAP": _map,
    "STRUCT": _struct,
}


def unify(values: Sequence[Any]) -> Row:
    """Return a key in which equal floats are equal: no negative zero, one NaN."""
    return tuple(
        (NAN if math.isnan(value) else value + 0.0) if isinstance(value, float) else value
        for value in values
    )


def order_key(value: Any, type_: DataType) -> tuple[Any, ...]:
    """Return what orders a value among others of its type: nulls first, NaN last.

    Strings go by code point (which is the order of their UTF-8 bytes), arrays item by
    item, structs field by field, maps by their sorted pairs.
    """
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (2,)
    if type_.kind == "ARRAY":
        return (1, tuple(order_key(item, type_.arguments[0]) for item in value))
    if type_.kind == "STRUCT":
        pairs = zip(type_.names, type_.arguments, strict=True)
        return (1, tuple(order_key(value[name], of_field) for name, of_field in pairs))
    if type_.kind == "MAP":
        of_key, of_value = type_.arguments
        return (1, sorted((order_key(k, of_key), order_key(v, of_value)) for k, v in value.items()))
    return (1, value)


def row_order(row: Sequence[Any], types: Sequence[DataType]) -> tuple[Any, ...]:
    """Return what orders a row by all of its values, from the left."""
    return tuple(order_key(value, type_) for value, type_ in zip(row, types, strict=True))
