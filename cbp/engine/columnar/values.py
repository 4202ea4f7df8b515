"""Values of records in Python: checked against their type, compared and ordered.

`typed` turns an emitted value into the canonical Python value of its type, or refuses it; nothing
is rounded, cut or guessed. `order_key` gives the total order in which groups, records and state are
presented: nulls first, then ascending, NaN last.

    >>> typed(3, DataType("DOUBLE"))
    3.0
    >>> typed(3.5, DataType("BIGINT"))
    Traceback (most recent call last):
    TypeError: expected an integer

Guarantees: the result shares no list or dict with the given value; applying `typed`
twice changes nothing (tests/cbp/engine/columnar/test_values.py). No Arrow, no Spark here.
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

from cbp.errors import text_of
from cbp.model.dataflow.routing import KeyMismatch
from cbp.model.flow.schema import DataType, Schema

Row = tuple[Any, ...]

NAN = float("nan")
"""The one NaN object used for every NaN: containers find it by identity."""

_BOOLS = (bool, np.bool_)
_NO_INTS = (*_BOOLS, np.ndarray)  # an author may change an array of one number after emitting it
_NUMBERS = (int, float, np.integer, np.floating)
FLOATS = ("DOUBLE", "FLOAT")
INT_BITS = {"BIGINT": 64, "INT": 32, "SMALLINT": 16, "TINYINT": 8}


def typed_row(values: Sequence[Any], schema: Schema) -> Row:
    """Return a record in its declared types; a `TypeError` names the first wrong column."""
    return tuple(
        typed_column(value, column.name, column.type, nullable=column.nullable)
        for value, column in zip(values, schema.fields, strict=True)
    )


def emitted_row(values: Sequence[Any], schema: Schema, emit: str) -> Row:
    """Return the result of `typed_row`; an error also names the emitting function."""
    try:
        return typed_row(values, schema)
    except TypeError as exc:
        message = f"{emit}: {exc}"
        raise TypeError(message) from exc


def own_row(row: Row, schema: Schema) -> Row:
    """Return a record that shares no list or dict with the given one."""
    nested = any(column.type.arguments for column in schema.fields)
    return typed_row(row, schema) if nested else row


def typed_column(value: Any, name: str, type_: DataType, *, nullable: bool = True) -> Any:
    """Return a value of a column in its type; a `TypeError` names the column."""
    if value is None and nullable:
        return None
    try:
        if value is not None:
            return typed(value, type_)
    except (TypeError, ValueError, OverflowError) as exc:
        raise _refused(value, name, f"{type_}", f": {exc}{_of_records(value)}") from exc
    why = ": emit a value, or declare the column without NOT NULL"
    raise _refused(value, name, f"{type_} NOT NULL", why)


def _of_records(value: Any) -> str:
    """Return a hint for a record, or several records, that was given instead of a value."""
    if type(value).__name__ == "flow":  # `read_once.Once`, or the iterator of another engine
        return (
            "; this is a flow of records: count them with sum(1 for row in group.urls), or loop "
            "over them"
        )
    fields = getattr(value, "_fields", ()) if isinstance(value, tuple) else ()
    if fields:
        return f"; this is a record, whose columns are attributes: write value.{fields[0]}"
    if isinstance(value, list) and value and hasattr(value[0], "_fields"):
        return "; this is a list of records: emit one record for each, in a loop"
    return ""


def _refused(value: Any, name: str, declared: str, why: str = "") -> TypeError:
    came = "None" if value is None else f"{text_of(value, repr)[:100]} ({type(value).__name__})"
    return TypeError(f"column {name!r} is declared {declared}, got {came}{why[:300]}")


def typed_key(given: Any, types: Sequence[DataType]) -> Row:
    """Return a key, or `order_by` values, from an author's function; raises `KeyMismatch`."""
    values = (given,) if len(types) == 1 else given
    try:
        return tuple(typed(value, type_) for value, type_ in zip(values, types, strict=True))
    except (TypeError, ValueError, OverflowError) as exc:
        declared = ", ".join(map(str, types))
        message = (
            f"expected a key of the declared types ({declared}), got {text_of(given, repr)}: {exc}"
        )
        raise KeyMismatch(message) from exc


def bound_key(given: Any, key: Schema) -> Row:
    """Return the key that an author binds to an address, in the form in which keys are compared.

    Raises `TypeError` unless there is one value for each column, and each of them fits.
    """
    values = given if isinstance(given, tuple) else (given,)
    if len(values) != len(key):
        shown = text_of(given, repr)
        message = f"out.associate: expected a value for each column of the key ({key}), got {shown}"
        raise TypeError(message)
    return unify(typed_row(values, key))


def typed(value: Any, type_: DataType) -> Any:
    """Return a value in its type, or null; raises `TypeError`, `ValueError`, `OverflowError`."""
    if value is None:
        return None
    if type_.kind in INT_BITS:
        return _integer(value, INT_BITS[type_.kind])
    return _READERS[type_.kind](value, type_)


def _integer(value: Any, bits: int) -> int:
    if type(value) is not int and (isinstance(value, _NO_INTS) or not hasattr(value, "__index__")):
        message = f"expected an integer{_to_integer(value)}"
        raise TypeError(message)
    number = operator.index(value)
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        limit = 1 << (bits - 1)
        message = f"expected a value from {-limit} to {limit - 1}"
        raise OverflowError(message)
    return number


def _to_integer(value: Any) -> str:
    if isinstance(value, str):
        return "; write int(value)"
    if isinstance(value, float | Decimal):
        return "; write round(value), or declare the column DOUBLE"
    return "; write int(value), or declare the column BOOLEAN" if isinstance(value, bool) else ""


def _float(value: Any, type_: DataType) -> float:
    if isinstance(value, _BOOLS) or not isinstance(value, _NUMBERS):
        hint = "; write float(value)" if isinstance(value, str | Decimal) else ""
        message = f"expected a number{hint}"
        raise TypeError(message)
    number = float(value)
    if not math.isnan(number) and number != value:
        message = f"{value} cannot be represented exactly; to round it, write float(value)"
        raise OverflowError(message)
    if type_.kind == "FLOAT" and math.isfinite(number):
        (number,) = struct.unpack("<f", struct.pack("<f", number))
    return number


def _decimal(value: Any, type_: DataType) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        hint = "; write Decimal(str(value))" if isinstance(value, float | str) else ""
        message = f"expected an int or a Decimal{hint}"
        raise TypeError(message)
    sign, digits, exponent = Decimal(value).as_tuple()
    if not isinstance(exponent, int):
        message = f"expected a finite number, got {value}"
        raise TypeError(message)
    if not any(digits):
        return Decimal((0, (0,), -type_.scale))
    shift = exponent + type_.scale
    if shift < 0 and any(digits[shift:]):
        places = type_.scale
        rounded = f"with decimal.localcontext(traps=[]): value = round(value, {places})"
        message = f"{value} has more than {places} decimal places; to round it, write `{rounded}`"
        raise OverflowError(message)
    if len(digits) + shift > type_.precision:  # before its zeros are written: 1E+999999 has many
        whole = type_.precision - type_.scale
        message = f"{value} has more than {whole} digits before the decimal point"
        raise OverflowError(message)
    scaled = (*digits, *(0,) * shift) if shift >= 0 else digits[:shift]
    return Decimal((sign, scaled, -type_.scale))


def _string(value: Any, _: DataType) -> str:
    _expect(value, str)
    try:
        value.encode()
    except UnicodeEncodeError as exc:
        message = (
            "the text has half of a surrogate pair, which is not a character; decode the bytes "
            "with errors='replace'"
        )
        raise TypeError(message) from exc
    return str.__str__(value)  # the text itself: `str()` of an Enum member gives its name


def _binary(value: Any, _: DataType) -> bytes:
    _expect(value, bytes, bytearray, memoryview)
    return bytes(value)


def _boolean(value: Any, _: DataType) -> bool:
    _expect(value, bool, np.bool_)
    return bool(value)


def _date(value: Any, _: DataType) -> date:
    if isinstance(value, datetime):
        message = "expected a date without a time; write value.date()"
        raise TypeError(message)
    _expect(value, date)
    return date(value.year, value.month, value.day)


def _timestamp(value: Any, _: DataType) -> datetime:
    _expect(value, datetime)
    if value != value:
        message = "NaT is not a time; emit None"
        raise TypeError(message)
    if value.tzinfo is None:
        message = (
            "a time without a zone is ambiguous; give it a zone, as in value.replace(tzinfo=UTC). "
            "For the current time use group.run.time"
        )
        raise TypeError(message)
    if getattr(value, "nanosecond", 0):
        message = "a TIMESTAMP has no nanoseconds, and this value does; use value.round('us')"
        raise OverflowError(message)
    utc: datetime = value.astimezone(UTC)
    if type(utc) is not datetime:  # a subclass, such as that of pandas
        utc = datetime.fromtimestamp(0, UTC) + (utc - datetime.fromtimestamp(0, UTC))
    return utc


def _array(value: Any, type_: DataType) -> list[Any]:
    _expect(value, list, tuple)
    return [typed(item, type_.arguments[0]) for item in value]


def _map(value: Any, type_: DataType) -> dict[Any, Any]:
    _expect(value, Mapping)
    if None in value:
        message = "a key of a MAP cannot be null"
        raise TypeError(message)
    of_key, of_value = type_.arguments
    made = {typed(k, of_key): typed(v, of_value) for k, v in value.items()}
    # Floats are unified first: for a dict, two NaNs are two keys.
    if len({unify((key,)) for key in made} if of_key.kind in FLOATS else made) < len(value):
        message = f"two keys are equal after their conversion to {of_key}"
        raise ValueError(message)
    return made


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
        names = [class_.__name__ for class_ in classes]
        message = f"expected {' or '.join(names)}{_CONVERSIONS.get((type(value), names[0]), '')}"
        raise TypeError(message)


_CONVERSIONS: Mapping[tuple[type, str], str] = {
    (bytes, "str"): "; write value.decode()",
    (int, "str"): "; write str(value)",
    (float, "str"): "; write str(value)",
    (str, "bytes"): "; write value.encode()",
    (int, "bool"): "; write bool(value)",
    (str, "datetime"): "; write datetime.fromisoformat(value), with a zone",
    (int, "datetime"): "; write datetime.fromtimestamp(seconds, UTC)",
    (float, "datetime"): "; write datetime.fromtimestamp(seconds, UTC)",
    (date, "datetime"): "; write datetime(value.year, value.month, value.day, tzinfo=UTC)",
    (str, "date"): "; write date.fromisoformat(value)",
    (set, "list"): "; write sorted(value)",
    (str, "list"): "; write [value]",
}
"""A value's type, the name of the expected type -> how an author converts the value."""


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
    """Return a key in which equal floats are one value: no negative zero, one NaN."""
    return tuple(
        (NAN if math.isnan(value) else value + 0.0) if isinstance(value, float) else value
        for value in values
    )


def order_key(value: Any, type_: DataType) -> tuple[Any, ...]:
    """Return a sort key for a value among others of its type: nulls first, NaN last.

    Strings are ordered by code point (the order of their UTF-8 bytes), arrays item by
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
    """Return a sort key for a row: all of its values, from the left."""
    return tuple(order_key(value, type_) for value, type_ in zip(row, types, strict=True))
