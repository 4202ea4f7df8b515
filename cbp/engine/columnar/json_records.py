"""Records as JSON text that every reader of a table can show, and back without loss.

A record is an object by column. Values that JSON lacks are texts: decimals, dates, times in UTC,
bytes in base64, `NaN` and `Infinity`. A MAP whose keys are texts is an object, any other a list of
pairs.

Invariant: `read_record(record_text(row, schema), schema) == row` for every value of every type
(tests/cbp/engine/columnar/test_json_records.py).
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from cbp.engine.columnar.values import Row, typed_row
from cbp.model.flow.schema import DataType, Schema

_Kinds = Mapping[str, Callable[[Any, DataType], Any]]


def record_text(row: Sequence[Any], schema: Schema) -> str:
    """Return a record, whose values have their declared types, as a JSON object."""
    pairs = zip(schema.fields, row, strict=True)
    return json.dumps(
        {column.name: _plain(value, column.type) for column, value in pairs},
        ensure_ascii=False,
        allow_nan=False,
        separators=(",", ":"),
    )


def read_record(text: str, schema: Schema) -> Row:
    """Return the record that `record_text` wrote, with the columns of a schema.

    A column that the text lacks is null; one that the schema lacks is left out. A value that does
    not fit is a `TypeError`, `ValueError` or `ArithmeticError`.
    """
    values = json.loads(text)
    return typed_row([_typed(values.get(one.name), one.type) for one in schema.fields], schema)


def _converted(value: Any, type_: DataType, kinds: _Kinds) -> Any:
    convert = kinds.get(type_.kind)
    return value if value is None or convert is None else convert(value, type_)


def _plain(value: Any, type_: DataType) -> Any:
    return _converted(value, type_, _WRITERS)


def _typed(value: Any, type_: DataType) -> Any:
    return _converted(value, type_, _READERS)


def _write_float(value: Any, _: DataType) -> Any:
    if math.isfinite(value):
        return float(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _write_map(value: Any, type_: DataType) -> Any:
    of_key, of_value = type_.arguments
    pairs = [(_plain(k, of_key), _plain(v, of_value)) for k, v in dict(value).items()]
    return dict(pairs) if of_key.kind == "STRING" else [list(pair) for pair in pairs]


def _read_map(value: Any, type_: DataType) -> Any:
    of_key, of_value = type_.arguments
    pairs = value.items() if isinstance(value, Mapping) else value
    return {_typed(k, of_key): _typed(v, of_value) for k, v in pairs}


def _write_struct(value: Any, type_: DataType) -> Any:
    values = value if isinstance(value, Mapping) else dict(zip(type_.names, value, strict=True))
    fields = zip(type_.names, type_.arguments, strict=True)
    return {name: _plain(values[name], of_field) for name, of_field in fields}


def _read_struct(value: Any, type_: DataType) -> Any:
    fields = zip(type_.names, type_.arguments, strict=True)
    return {name: _typed(value.get(name), of_field) for name, of_field in fields}


_WRITERS: _Kinds = {
    "FLOAT": _write_float,
    "DOUBLE": _write_float,
    "DECIMAL": lambda value, _: str(value),
    "DATE": lambda value, _: value.isoformat(),
    "TIMESTAMP": lambda value, _: value.isoformat(),
    "BINARY": lambda value, _: base64.b64encode(value).decode(),
    "ARRAY": lambda value, type_: [_plain(item, type_.arguments[0]) for item in value],
    "MAP": _write_map,
    "STRUCT": _write_struct,
}

_READERS: _Kinds = {
    "FLOAT": lambda value, _: float(value),
    "DOUBLE": lambda value, _: float(value),
    "DECIMAL": lambda value, _: Decimal(value),
    "DATE": lambda value, _: date.fromisoformat(value),
    "TIMESTAMP": lambda value, _: datetime.fromisoformat(value),
    "BINARY": lambda value, _: base64.b64decode(value, validate=True),
    "ARRAY": lambda value, type_: [_typed(item, type_.arguments[0]) for item in value],
    "MAP": _read_map,
    "STRUCT": _read_struct,
}
