"""The strict type check of emitted tables: whole columns, nothing rounded, cut or guessed.

The rules are those for single records (`cbp.engine.columnar.values`). A number of another width
fits if every value has the same meaning in the declared type. Text never fits a number, a number
never fits a truth value, and 1.0 never fits an integer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import with_types
from cbp.engine.columnar.value_limits import why_not_held
from cbp.engine.kernel.arrow.groups import author_schema
from cbp.engine.storage.file_sizes import halves
from cbp.model.flow.schema import DataType, Field, Schema

_BYTES_MAX = 1 << 30
"""In a table of at most this many bytes, strings surely fit in Arrow's narrow types."""

_FEW_ROWS = 65_536
"""Up to this many rows of numbers take few bytes, however many columns they have."""

_INTEGERS = ("BIGINT", "INT", "SMALLINT", "TINYINT")
_TIMES = ("DATE", "TIMESTAMP")
_is = pa.types
_CHECKS: dict[str, Callable[[pa.DataType], bool]] = {
    "STRING": lambda t: _is.is_string(t) or _is.is_large_string(t) or _is.is_string_view(t),
    "BINARY": lambda t: (
        _is.is_binary(t)
        or _is.is_large_binary(t)
        or _is.is_fixed_size_binary(t)
        or _is.is_binary_view(t)
    ),
    "BOOLEAN": _is.is_boolean,
    "DOUBLE": lambda t: _is.is_floating(t) or _is.is_integer(t),
    "FLOAT": lambda t: _is.is_floating(t) or _is.is_integer(t),
    "DECIMAL": lambda t: _is.is_decimal(t) or _is.is_integer(t),
    "DATE": _is.is_date,
    "TIMESTAMP": lambda t: _is.is_timestamp(t) and t.tz is not None,
}


def conform(table: pa.Table, schema: Schema) -> pa.Table:
    """Return exactly the declared columns; a `TypeError` names the first wrong one."""
    if table.num_columns != len(schema) or set(table.column_names) != set(schema.names):
        came = ", ".join(table.column_names) or "none"
        message = f"expected the columns {', '.join(schema.names)}, got {came}"
        raise TypeError(message)
    wanted = author_schema(schema)
    if table.schema.types == wanted.types and table.column_names == wanted.names:
        columns = table.columns
    else:
        columns = [
            _column(table.column(field.name), field, type_)
            for field, type_ in zip(schema.fields, wanted.types, strict=True)
        ]
    for column, field in zip(columns, schema.fields, strict=True):
        if column.null_count and not field.nullable:
            raise _refused(field, "a null")
        if not field.type.arguments and field.type.kind not in _TIMES:
            continue  # no value of such a type is refused
        if why := next(filter(None, map(why_not_held, column.chunks)), ""):
            raise _refused(field, why)
    return pa.Table.from_arrays(columns, schema=wanted)


def narrow(
    table: pa.Table, schema: pa.Schema, *, bytes_max: int = _BYTES_MAX
) -> Iterator[pa.Table]:
    """Yield the rows in the types of a file, in pieces of at most this many bytes (below 2 GB)."""
    if bytes_max == _BYTES_MAX and table.num_rows <= _FEW_ROWS and _is_slim(schema):
        yield from [with_types(table, schema)] if table.num_rows else []
        return
    for piece in halves(table, rows_max=table.num_rows, bytes_max=bytes_max):
        try:
            yield with_types(piece, schema)
        except pa.ArrowInvalid:
            # Arrow judges a view by its end in the column, not by its length: copy it.
            yield with_types(piece.take(pa.array(np.arange(piece.num_rows))), schema)


@lru_cache(maxsize=1024)
def _is_slim(schema: pa.Schema) -> bool:
    """Return whether each column has numbers or times, so that few rows have few bytes."""
    return all(_is.is_primitive(type_) for type_ in schema.types)


def narrow_batches(
    table: pa.Table, schema: pa.Schema, *, rows_max: int, bytes_max: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows in a file's types, in batches of at least one row that keep both limits."""
    for part in halves(table, rows_max=rows_max, bytes_max=bytes_max):
        for piece in narrow(part, schema):
            yield from piece.to_batches()


def _column(column: pa.ChunkedArray, field: Field, type_: pa.DataType) -> pa.ChunkedArray:
    if _is.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not _fits(column.type, field.type):
        zoneless = _is.is_timestamp(column.type) and field.type.kind == "TIMESTAMP"
        hint = ", which has no time zone: use a type with one, such as pa.timestamp('us', 'UTC')"
        raise _refused(field, f"{column.type}{hint if zoneless else ''}")
    came = column.type
    try:
        if field.type.kind == "DECIMAL" and _is.is_integer(came):
            # Cast twice, as Arrow asks for enough digits for every number of the integer type.
            column = column.cast(pa.decimal128(38, 0))
        return column.cast(type_)
    except (pa.ArrowException, ValueError) as exc:
        raise _refused(field, f"{came} ({exc})") from exc


def _fits(type_: pa.DataType, declared: DataType) -> bool:
    if _is.is_null(type_):
        return True
    if declared.kind in _INTEGERS:
        return bool(_is.is_integer(type_))
    if declared.kind in _CHECKS:
        return bool(_CHECKS[declared.kind](type_))
    return _nested_fits(type_, declared)


def _nested_fits(type_: pa.DataType, declared: DataType) -> bool:
    inner_types: list[Any]
    if declared.kind == "MAP":
        inner_types = [type_.key_type, type_.item_type] if _is.is_map(type_) else []
    elif declared.kind == "ARRAY":
        inner_types = [type_.value_type] if _is.is_list(type_) or _is.is_large_list(type_) else []
    else:
        if not _is.is_struct(type_) or tuple(f.name for f in type_) != declared.names:
            return False
        inner_types = [field.type for field in type_]
    return bool(inner_types) and all(map(_fits, inner_types, declared.arguments))


def _refused(field: Field, came: str) -> TypeError:
    declared = f"{field.type}{'' if field.nullable else ' NOT NULL'}"
    return TypeError(f"column {field.name!r} is declared {declared}, got {came}")
