"""Records between Arrow, where they lie, and Python, where the author sees them.

The author reads a record as a named tuple with a field per column of the input's
schema, and emits one by calling a function with a parameter per column. Both are
made once per schema. Values: strings, numbers, `datetime` (UTC), `date`, `Decimal`,
`bytes`, `list` (ARRAY) and `dict` (STRUCT, MAP), as pyarrow gives them.
"""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from cbp.engine.arrow import arrow_type
from cbp.model.schema import DataType, Schema

__all__ = [
    "Row",
    "check_row",
    "decode_columns",
    "emit_function",
    "encode_rows",
    "identity",
    "row_type",
]

Row = tuple[Any, ...]


@lru_cache(maxsize=1024)
def row_type(name: str, columns: tuple[str, ...]) -> Any:
    """Return the named tuple class of a flow's records."""
    return namedtuple(name, columns)


def emit_function(
    output: str, columns: Sequence[str], take: Callable[[Row], None]
) -> Callable[..., None]:
    """Return a function that takes the columns by name and hands on a tuple.

    It is compiled rather than built from `*args, **kwargs`, because Python then
    checks the names itself, at a third of the cost, once per emitted record.
    Column names are checked identifiers that never begin with an underscore.
    """
    parameters = ", ".join(columns)
    source = f"def emit({parameters}):\n    _take(({parameters},))"
    scope: dict[str, Any] = {"_take": take}
    exec(source, scope)
    emit: Callable[..., None] = scope["emit"]
    emit.__qualname__ = f"out.{output}"
    return emit


def decode_columns(
    table: pa.Table, columns: Sequence[str], types: Sequence[DataType]
) -> Iterator[Row]:
    """Yield the records of a table as plain tuples of the named columns."""
    lists = [_decode(table.column(c), t) for c, t in zip(columns, types, strict=True)]
    return zip(*lists, strict=True)


def _decode(column: pa.ChunkedArray, type_: DataType) -> list[Any]:
    if type_.arguments:
        values: list[Any] = column.to_pylist(maps_as_pydicts="strict")
        return values
    values = column.to_pylist()
    return values


def encode_rows(rows: Sequence[Row], schema: Schema) -> list[pa.Array]:
    """Return the columns of emitted records as Arrow arrays.

    Raises:
        pa.ArrowException, OverflowError, TypeError, ValueError: Some value does not
            fit; the caller finds out which one with `check_row`.
    """
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    return [
        _encode(values, column.type, column.nullable)
        for values, column in zip(columns, schema.fields, strict=True)
    ]


def _encode(values: Sequence[Any], type_: DataType, nullable: bool) -> pa.Array:
    array = pa.array(values, arrow_type(type_))
    if type_.kind in ("BIGINT", "INT", "SMALLINT", "TINYINT") and bool in set(map(type, values)):
        raise TypeError(type_.kind)
    if not nullable and array.null_count:
        msg = "NOT NULL"
        raise ValueError(msg)
    return array


def check_row(row: Row, schema: Schema) -> None:
    """Raise `TypeError` that names the column, the value and the declared type."""
    for value, column in zip(row, schema.fields, strict=True):
        try:
            _encode((value,), column.type, column.nullable)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as exc:
            declared = f"{column.type}" + ("" if column.nullable else " NOT NULL")
            shown = repr(value)
            message = (
                f"column {column.name!r} is declared {declared}, "
                f"got {shown[:100]} ({type(value).__name__})"
            )
            raise TypeError(message) from exc


def identity(value: Any) -> Hashable:
    """Return a hashable stand-in that is equal for equal values, nested ones included."""
    if isinstance(value, list | tuple):
        return tuple(map(identity, value))
    if isinstance(value, dict):
        return frozenset((identity(k), identity(v)) for k, v in value.items())
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    result: Hashable = value
    return result
