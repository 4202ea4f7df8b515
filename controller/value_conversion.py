"""Converts one value of JSON or CSV to its declared type; a value that does not fit is an error.

This is the definition of what is accepted; `controller.ingest.formats.columns` is a
faster way to the same result. No value is rounded, truncated, wrapped or guessed:

    type        JSON                                  CSV text
    STRING      string                                any
    integers    integer in range                      optional sign, digits, in range
    DOUBLE      number, "NaN", "Infinity"             decimal notation, NaN, Infinity
    FLOAT       same, in range                        same, in range
    DECIMAL     number or string that fits exactly    digits that fit exactly
    BOOLEAN     true, false                           true, false (any case)
    DATE        "YYYY-MM-DD"                          YYYY-MM-DD
    TIMESTAMP   ISO 8601, at most microseconds;       same
                without a zone only where the
                source names one
    BINARY      base64                                not declared for CSV
    nested      array, object; keys that a STRUCT     not declared for CSV
                lacks are refused unless the source
                ignores them

A converter raises `ValueError` with a text that says what was expected and what came.
"""

from __future__ import annotations

import base64
import binascii
import decimal
import math
import re
import reprlib
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, tzinfo
from decimal import Decimal
from functools import partial
from typing import Any, NoReturn

from cbp.model.flow.schema import DataType
from cbp.model.source.options import STRICT, ValueRules

__all__ = ["INTEGER_BITS", "STRICT", "Converter", "ValueRules", "excerpt", "from_json", "from_text"]

Converter = Callable[[Any], Any]

INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_EXACT = decimal.Context(prec=80, traps=[decimal.InvalidOperation, decimal.Inexact])
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIMESTAMP = re.compile(
    r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:?\d{2})?", re.ASCII
)
_INTEGER = re.compile(r"[+-]?\d{1,40}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,18})?", re.ASCII)
_EXCERPT = 80
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def excerpt(value: object) -> str:
    """Return a value as text of bounded length, for messages; reads a few hundred parts at most."""
    text = value[: _EXCERPT + 1] if isinstance(value, str | bytes) else value
    shown = repr(text) if isinstance(text, str | bytes | float) else _SHORT.repr(text)
    return shown if len(shown) <= _EXCERPT else shown[: _EXCERPT - 3] + "..."


def _short() -> reprlib.Repr:
    """Return a `Repr` that shortens long and deeply nested values."""
    short = reprlib.Repr()
    short.maxlevel, short.maxdict, short.maxlist = 3, 8, 8
    short.maxstring = short.maxlong = short.maxother = _EXCERPT
    return short


_SHORT = _short()


def from_json(type_: DataType, rules: ValueRules = STRICT) -> Converter:
    """Return the converter of parsed JSON values, for all but `None`."""
    return _converter(_JSON, type_, rules)


def from_text(type_: DataType, rules: ValueRules = STRICT) -> Converter:
    """Return the converter of CSV cells, for all but null cells."""
    return str if type_.kind == "STRING" else _converter(_TEXT, type_, rules)


def _converter(plain: Mapping[str, _Plain], type_: DataType, rules: ValueRules) -> Converter:
    convert = plain.get(type_.kind)
    return partial(convert, type_) if convert else _PREPARED[type_.kind](type_, rules)


def _wrong(type_: DataType, value: Any, more: str = "") -> NoReturn:
    names = {str: "string", bool: "boolean", int: "integer", float: "number", Decimal: "number"}
    names |= {dict: "object", list: "array", type(None): "null"}
    shown = str(value) if isinstance(value, Decimal) else value
    came = f"{names.get(type(value), type(value).__name__)} {excerpt(shown)}"
    message = f"expected {type_}{more}, got {came}"
    raise ValueError(message)


def _json_string(type_: DataType, value: Any) -> str:
    if type(value) is not str:
        _wrong(type_, value)
    return _valid_text(value)


def _valid_text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as exc:
        message = f"expected valid Unicode, got half of a surrogate pair in {excerpt(value)}"
        raise ValueError(message) from exc
    return value


def _json_integer(type_: DataType, value: Any) -> int:
    if type(value) is not int:
        _wrong(type_, value)
    return _in_range(type_, value)


def _text_integer(type_: DataType, value: str) -> int:
    if not _INTEGER.fullmatch(value):
        _wrong(type_, value)
    return _in_range(type_, int(value))


def _in_range(type_: DataType, value: int) -> int:
    limit = 1 << (INTEGER_BITS[type_.kind] - 1)
    if not -limit <= value < limit:
        _wrong(type_, value, f" from {-limit} to {limit - 1}")
    return value


def _json_real(type_: DataType, value: Any) -> float:
    if type(value) is str and value in _SPECIAL:
        return _SPECIAL[value]
    if type(value) not in (int, float, Decimal):
        _wrong(type_, value)
    return _finite(type_, value)


def _text_real(type_: DataType, value: str) -> float:
    if value in _SPECIAL:
        return _SPECIAL[value]
    if not _NUMBER.fullmatch(value):
        _wrong(type_, value)
    return _finite(type_, value)


def _finite(type_: DataType, value: Any) -> float:
    try:
        real = float(value)
        if type_.kind == "FLOAT":
            struct.pack("<f", real)
    except OverflowError:
        _wrong(type_, value, " in range")
    if not math.isfinite(real):
        _wrong(type_, value, " in range")
    return real


def _decimal(type_: DataType, rules: ValueRules) -> Converter:
    unit = Decimal(1).scaleb(-type_.scale)
    limit = Decimal(1).scaleb(type_.precision - type_.scale)

    def convert(value: Any) -> Decimal:
        if isinstance(value, str):
            if not _NUMBER.fullmatch(value):
                _wrong(type_, value)
        elif type(value) not in (int, Decimal):
            _wrong(type_, value)
        try:
            exact = Decimal(value).quantize(unit, context=_EXACT)
        except decimal.DecimalException:
            _wrong(type_, value, " without rounding")
        if not -limit < exact < limit:
            _wrong(type_, value, " in range")
        return exact

    return convert


def _json_boolean(type_: DataType, value: Any) -> bool:
    if type(value) is not bool:
        _wrong(type_, value)
    return value


def _text_boolean(type_: DataType, value: str) -> bool:
    lower = value.lower()
    if lower not in ("true", "false"):
        _wrong(type_, value)
    return lower == "true"


def _date(type_: DataType, value: Any) -> date:
    if type(value) is not str or not _DATE.fullmatch(value):
        _wrong(type_, value, " as YYYY-MM-DD")
    try:
        return date.fromisoformat(value)
    except ValueError:
        _wrong(type_, value, " that exists")


def _timestamp(type_: DataType, rules: ValueRules) -> Converter:
    def convert(value: Any) -> datetime:
        if type(value) is not str or not _TIMESTAMP.fullmatch(value):
            _wrong(type_, value, " in ISO 8601 with at most microseconds")
        try:
            moment = datetime.fromisoformat(value)
            if moment.tzinfo is None:
                moment = _in_zone(moment, rules.zone, value)
            return moment.astimezone(UTC)
        except _NoZoneError:
            raise
        except (ValueError, OverflowError):
            _wrong(type_, value, " that exists")

    return convert


class _NoZoneError(ValueError):
    """A time has no zone, so its moment is unknown."""


def _in_zone(moment: datetime, zone: tzinfo | None, value: str) -> datetime:
    if zone is None:
        message = (
            f"expected TIMESTAMP with a zone, such as 2026-11-21T10:00:00Z, got {excerpt(value)}; "
            'write the zone, or name it in the source: options: {timezone: "UTC"}'
        )
        raise _NoZoneError(message)
    first, second = moment.replace(tzinfo=zone, fold=0), moment.replace(tzinfo=zone, fold=1)
    if first.utcoffset() != second.utcoffset():
        message = (
            f"{value} exists twice, or not at all, in {zone}, since clocks change then; write the "
            "time with its offset, such as +01:00"
        )
        raise _NoZoneError(message)
    return first


def _json_binary(type_: DataType, value: Any) -> bytes:
    if type(value) is not str:
        _wrong(type_, value, " in base64")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        _wrong(type_, value, " in base64")


def _json_array(type_: DataType, rules: ValueRules) -> Converter:
    inner = from_json(type_.arguments[0], rules)

    def convert(value: Any) -> list[Any]:
        if type(value) is not list:
            _wrong(type_, value)
        return [_inside(inner, item, f"[{at}]") for at, item in enumerate(value)]

    return convert


def _json_map(type_: DataType, rules: ValueRules) -> Converter:
    key_type, value_type = type_.arguments
    key = (from_json if key_type.kind == "STRING" else from_text)(key_type, rules)
    inner = from_json(value_type, rules)

    def convert(value: Any) -> list[tuple[Any, Any]]:
        if type(value) is not dict:
            _wrong(type_, value)
        pairs = [
            (_inside(key, name, f"key {excerpt(name)}"), _inside(inner, item, f"[{excerpt(name)}]"))
            for name, item in value.items()
        ]
        if len({name for name, _ in pairs}) != len(pairs):
            message = f"two keys of {excerpt(value)} are equal as {key_type}"
            raise ValueError(message)
        return pairs

    return convert


def _json_struct(type_: DataType, rules: ValueRules) -> Converter:
    converters = [from_json(inner, rules) for inner in type_.arguments]
    fields = dict(zip(type_.names, converters, strict=True))

    def convert(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            _wrong(type_, value)
        if not (rules.ignore_unknown or value.keys() <= fields.keys()):
            unknown = next(name for name in value if name not in fields)
            message = f"unknown key {excerpt(unknown)}: {type_} has {', '.join(fields)}"
            raise ValueError(message)
        return {name: _inside(fields[name], value.get(name), f".{name}") for name in fields}

    return convert


def _inside(convert: Converter, value: Any, where: str) -> Any:
    if value is None:
        return None
    try:
        return convert(value)
    except ValueError as exc:
        message = f"at {where}: {exc}"
        raise ValueError(message) from exc


_Plain = Callable[[DataType, Any], Any]
_JSON: dict[str, _Plain] = {
    **dict.fromkeys(INTEGER_BITS, _json_integer),
    "STRING": _json_string,
    "DOUBLE": _json_real,
    "FLOAT": _json_real,
    "BOOLEAN": _json_boolean,
    "DATE": _date,
    "BINARY": _json_binary,
}
_TEXT: dict[str, _Plain] = {
    **dict.fromkeys(INTEGER_BITS, _text_integer),
    "DOUBLE": _text_real,
    "FLOAT": _text_real,
    "BOOLEAN": _text_boolean,
    "DATE": _date,
}
_PREPARED: dict[str, Callable[[DataType, ValueRules], Converter]] = {
    "DECIMAL": _decimal,
    "TIMESTAMP": _timestamp,
    "ARRAY": _json_array,
    "MAP": _json_map,
    "STRUCT": _json_struct,
}
"""Makers of the converters that depend on details of their type, or on rules."""
