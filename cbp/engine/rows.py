"""Records between Arrow, where they lie, and Python, where the author sees them.

The author reads a record as a named tuple with a field per column of the input's
schema, and emits one by calling a function with a parameter per column. Both are
made once per schema. Values: strings, numbers, `datetime` (UTC), `date`, `Decimal`,
`bytes`, `list` (ARRAY) and `dict` (STRUCT, MAP), as pyarrow gives them.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Any

import numpy as np
import pyarrow as pa

from cbp.engine.arrow import arrow_type
from cbp.engine.values import typed, typed_row
from cbp.model.schema import DataType, Schema

__all__ = [
    "ENCODE_ERRORS",
    "EXACT",
    "Row",
    "check_row",
    "decode_columns",
    "decode_lists",
    "emit_function",
    "encode_column",
    "encode_rows",
    "row_type",
    "rows_maker",
]

Row = tuple[Any, ...]

ENCODE_ERRORS = (pa.ArrowException, OverflowError, TypeError, ValueError)
"""What is raised for a value that is not of its column's type."""

_NOTHING: frozenset[type] = frozenset()
_LISTS = frozenset({list, tuple, type(None)})
EXACT: dict[str, frozenset[type]] = {
    kind: frozenset({python, type(None)})
    for kind, python in {
        "STRING": str,
        "BIGINT": int,
        "INT": int,
        "SMALLINT": int,
        "TINYINT": int,
        "DOUBLE": float,
        "BOOLEAN": bool,
        "BINARY": bytes,
    }.items()
}
"""Python's type of a column's values, and of null; of other columns there are several."""


@lru_cache(maxsize=1024)
def row_type(name: str, columns: tuple[str, ...]) -> Any:
    """Return the named tuple class of a flow's records."""
    return namedtuple(name, columns)


def rows_maker(name: str, columns: tuple[str, ...]) -> Callable[[Iterable[Row]], list[Row]]:
    """Return what makes records of their values; `_make`, many times, at a third of its cost."""
    new: Any = tuple.__new__
    kind = row_type(name, columns)
    return lambda values: list(map(new, repeat(kind), values))


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
    return zip(*decode_lists(table, columns, types), strict=True)


def decode_lists(
    table: pa.Table, columns: Sequence[str], types: Sequence[DataType]
) -> list[list[Any]]:
    """Return the named columns of a table, each as a list of Python values."""
    return [_decode(table.column(c), t) for c, t in zip(columns, types, strict=True)]


def _decode(column: pa.ChunkedArray | pa.Array, type_: DataType) -> list[Any]:
    values: list[Any]
    if type_.kind == "ARRAY":
        values = []
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            values.extend(_decode_lists(chunk, type_.arguments[0]))
    elif type_.arguments:
        values = column.to_pylist(maps_as_pydicts="strict")
    else:
        values = column.to_pylist()
    return values


def _decode_lists(column: pa.Array, of_item: DataType) -> Iterator[list[Any] | None]:
    """Yield lists cut from all their items: pyarrow alone makes objects for every short list."""
    items = _decode(column.flatten(), of_item)
    sizes = column.value_lengths()
    start = 0
    for size in sizes.to_pylist():
        if size is None:
            yield None
        else:
            yield items[start : (start := start + size)]


def encode_rows(rows: Sequence[Row], schema: Schema) -> list[pa.Array]:
    """Return the columns of emitted records as Arrow arrays.

    Raises:
        pa.ArrowException, OverflowError, TypeError, ValueError: Some value does not
            fit; the caller finds out which one with `check_row`.
    """
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    return [
        encode_column(values, column.type, nullable=column.nullable)
        for values, column in zip(columns, schema.fields, strict=True)
    ]


def encode_column(values: Sequence[Any], type_: DataType, *, nullable: bool = True) -> pa.Array:
    """Return the values of one column as an Arrow array; raises as `encode_rows`.

    Arrow alone would round 1.5 to 1, and take a text for bytes.

    A column whose values all have the one Python type of its declared type is taken as
    it is; any other is made strict value by value.
    """
    found = set(map(type, values))
    if not nullable and type(None) in found:
        message = "NOT NULL"
        raise ValueError(message)
    if type_.kind == "ARRAY" and found <= _LISTS:
        return _encode_lists(values, type_)
    if not found <= EXACT.get(type_.kind, _NOTHING):
        values = [typed(value, type_) for value in values]
    return pa.array(values, arrow_type(type_))


def _encode_lists(values: Sequence[Any], type_: DataType) -> pa.Array:
    """Return lists as an Arrow array; their items are one column, checked as such."""
    sizes = [0 if value is None else len(value) for value in values]
    ends = np.cumsum([0, *sizes])
    whole = arrow_type(type_)
    if ends[-1] > np.iinfo(np.int32).max:
        return pa.array([typed(value, type_) for value in values], whole)
    items = encode_column(list(chain.from_iterable(filter(None, values))), type_.arguments[0])
    missing = pa.array([value is None for value in values]) if None in values else None
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items, type=whole, mask=missing)


def check_row(row: Row, schema: Schema) -> None:
    """Raise `TypeError` that names the column, the value and the declared type."""
    typed_row(row, schema)
