"""Conversion of records between Arrow columns and Python values.

The author reads a record as a named tuple with a field per column of the input's
schema, and emits one by calling a function with a parameter per column. Both are
made once per schema. Values are strings, numbers, `datetime` (UTC), `date`, `Decimal`,
`bytes`, `list` (ARRAY) and `dict` (STRUCT, MAP), as pyarrow returns them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import cache, lru_cache, partial
from itertools import chain, repeat
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_type
from cbp.engine.columnar.values import Row, emitted_row, typed
from cbp.model.flow.attributes import attribute, by_attribute, record_class
from cbp.model.flow.schema import DataType, Schema

ENCODE_ERRORS = (pa.ArrowException, OverflowError, TypeError, ValueError)
"""Raised for a value that is not of its column's type."""

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
"""Python's types of a column's values, null included; only for kinds with one Python type."""

_FLOAT = struct.Struct("<f")

_NUMBERS = frozenset({"BIGINT", "INT", "SMALLINT", "TINYINT", "DOUBLE", "FLOAT", "BOOLEAN"})


def rows_maker(name: str, columns: tuple[str, ...]) -> Callable[[Iterable[Row]], list[Row]]:
    """Return a function that makes records from tuples of values, at a third of `_make`'s cost."""
    new: Any = tuple.__new__
    kind = record_class(name, columns)
    return lambda values: list(map(new, repeat(kind), values))


def emit_function(
    output: str,
    columns: Sequence[str],
    take: Callable[[Row], None],
    *,
    nested: Mapping[str, DataType] | None = None,
) -> Callable[..., None]:
    """Return the function by which an author emits a record: it turns columns by name into a tuple.

    It is compiled rather than built from `*args, **kwargs`: Python then checks the names itself,
    at a third of the cost. Attributes of columns are checked identifiers that never begin with an
    underscore. Values of `nested` columns are copied, since an author may change a list later.
    """
    names, types = [attribute(column) for column in columns], nested or {}
    values = (_copying(name, types.get(c)) for name, c in zip(names, columns, strict=True))
    emit = _emit_maker(tuple(names), tuple(values))(take)
    emit.__qualname__ = f"out.{output}"
    if names == [*columns]:
        return emit
    # A column that is named like a keyword is accepted under both of its names.
    return lambda *args, **named: emit(*args, **by_attribute(output, columns, named))


@lru_cache(maxsize=4096)
def _emit_maker(
    names: tuple[str, ...], values: tuple[str, ...]
) -> Callable[[Callable[[Row], None]], Callable[..., None]]:
    """Return a factory of emit functions; compiled once per process, since every task needs it."""
    lines = [
        "def make(_take):",
        f"    def emit({', '.join(names)}):",
        f"        _take(({', '.join(values)},))",
        "    return emit",
    ]
    scope: dict[str, Any] = {"_own": _own, "_type": type, "_list": list}
    exec("\n".join(lines), scope)
    make: Callable[[Callable[[Row], None]], Callable[..., None]] = scope["make"]
    return make


def _copying(name: str, type_: DataType | None) -> str:
    """Return the expression that copies an emitted value; `None` if it cannot be changed.

    The items of a list of numbers cannot be changed, since any other item is refused. So the list's
    own `copy` is enough, and takes a sixth of the time.
    """
    if type_ is None:
        return name
    if type_.kind == "ARRAY" and type_.arguments[0].kind in _NUMBERS:
        return f"{name}.copy() if _type({name}) is _list else _own({name})"
    return f"_own({name})"


def copies_maker(name: str, schema: Schema) -> Callable[[list[Row]], list[Row]] | None:
    """Return a function that copies records for an author; `None` if no column can be changed.

    Only lists and dicts are copied, a whole column at a time.
    """
    fields = enumerate(schema.fields)
    nested = [(at, _column_copier(f.type)) for at, f in fields if f.type.arguments]
    if not nested:
        return None
    make = rows_maker(name, schema.names)

    def copies(rows: list[Row]) -> list[Row]:
        if not rows:
            return []
        columns: list[Iterable[Any]] = list(zip(*rows, strict=True))
        for at, copy in nested:
            columns[at] = copy(columns[at])
        return make(zip(*columns, strict=True))

    return copies


def floats_rounder(schema: Schema) -> Callable[[list[Row]], list[Row]] | None:
    """Return a function that rounds values of FLOAT columns as storing them does.

    So a record that is emitted again with a computed number equals the stored one. `None` if there
    is no FLOAT column.
    """
    places = {at for at, field in enumerate(schema.fields) if field.type.kind == "FLOAT"}
    if not places:
        return None

    def rounded(rows: list[Row]) -> list[Row]:
        columns: list[Iterable[Any]] = list(zip(*rows, strict=True))
        for at in places if columns else ():
            columns[at] = [_rounded(v) if type(v) is float else v for v in columns[at]]
        return list(zip(*columns, strict=True))

    return rounded


def _rounded(value: float) -> float:
    (number,) = _FLOAT.unpack(_FLOAT.pack(value))
    return float(number)


def _column_copier(type_: DataType) -> Callable[[Iterable[Any]], Iterable[Any]]:
    if type_.kind == "ARRAY" and not type_.arguments[0].arguments:
        return _copied_lists
    return partial(map, _copier(type_))


def _copied_lists(values: Iterable[Any]) -> Iterable[Any]:
    try:
        return list(map(list.copy, values))
    except TypeError:  # there are nulls among them
        return [None if value is None else value.copy() for value in values]


def _copier(type_: DataType) -> Callable[[Any], Any]:
    inner = [_copier(one) if one.arguments else None for one in type_.arguments]
    if type_.kind == "ARRAY" and inner[0] is not None:
        copy = inner[0]
        return lambda value: None if value is None else list(map(copy, value))
    if type_.kind != "ARRAY" and any(inner):
        return _own
    return lambda value: value if value is None else value.copy()


def _own(value: Any) -> Any:
    """Return a deep copy of a value, or the value itself if it has no list, map or buffer."""
    if type(value) in _FIXED:
        return value
    if isinstance(value, list | tuple):
        kind: Any = tuple if isinstance(value, tuple) else list
        return kind(value if _FIXED.issuperset(map(type, value)) else map(_own, value))
    if isinstance(value, Mapping):
        return {key: _own(one) for key, one in value.items()}
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


_FIXED = frozenset({str, int, float, bool, bytes, type(None), datetime, date, Decimal})
"""Types of values that cannot be changed."""


def decode_columns(
    table: pa.Table, columns: Sequence[str], types: Sequence[DataType]
) -> Iterator[Row]:
    """Yield the records of a table as plain tuples of the named columns."""
    return zip(*decode_lists(table, columns, types), strict=True)


def decode_table(table: pa.Table, schema: Schema) -> Iterator[Row]:
    """Yield the records of a table as plain tuples of the columns of a schema."""
    return decode_columns(table, schema.names, [field.type for field in schema.fields])


def decode_lists(
    table: pa.Table, columns: Sequence[str], types: Sequence[DataType]
) -> list[list[Any]]:
    """Return the named columns of a table, each as a list of Python values."""
    return [_decode(table.column(c), t) for c, t in zip(columns, types, strict=True)]


def _decode(column: pa.ChunkedArray | pa.Array, type_: DataType) -> list[Any]:
    values: list[Any]
    if type_.kind == "ARRAY":
        values = []
        for chunk in _chunks(column):
            values.extend(_decode_lists(chunk, type_.arguments[0]))
    elif type_.kind in ("DATE", "TIMESTAMP"):
        values = list(chain.from_iterable(map(times_of, _chunks(column))))
    else:
        values = column.to_pylist(maps_as_pydicts="strict" if type_.arguments else None)
    return values


def _chunks(column: pa.ChunkedArray | pa.Array) -> Sequence[pa.Array]:
    chunks: list[pa.Array] = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return chunks


def times_of(column: pa.Array) -> list[Any]:
    """Convert dates or times as Arrow does, in a twentieth of the time."""
    if column.type not in _TIMES:
        return list(column.to_pylist())
    numbers = column.view(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    numbers = (numbers.fill_null(0) if column.null_count else numbers).to_numpy()
    values: list[Any]
    try:
        if pa.types.is_date32(column.type):
            values = list(map(date.fromordinal, (numbers + _EPOCH_DAY).tolist()))
        else:
            values = list(map(add, numbers.view("m8[us]").tolist(), repeat(_epoch())))
    except (OverflowError, TypeError, ValueError):  # Arrow raises the error for such a time
        return list(column.to_pylist())
    if column.null_count:
        for at in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
            values[at] = None
    return values


_EPOCH_DAY = date(1970, 1, 1).toordinal()

_TIMES = (pa.date32(), pa.timestamp("us", tz="UTC"))


@cache
def _epoch() -> datetime:
    """Return the beginning of 1970 with Arrow's object for UTC."""
    zero = pa.Array.from_buffers(_TIMES[1], 1, [None, pa.py_buffer(bytes(8))])
    begin: datetime = zero[0].as_py()
    return begin


def _decode_lists(column: pa.Array, of_item: DataType) -> Iterator[list[Any] | None]:
    """Yield lists cut from one list of all items; pyarrow would make objects for every list."""
    items = _decode(column.flatten(), of_item)
    sizes = column.value_lengths()
    start = 0
    for size in sizes.to_pylist():
        if size is None:
            yield None
        else:
            yield items[start : (start := start + size)]


def encode_rows(rows: Sequence[Row], schema: Schema) -> list[pa.Array]:
    """Return the columns of emitted records; one of `ENCODE_ERRORS` if a value does not fit."""
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    return [
        encode_column(values, column.type, nullable=column.nullable)
        for values, column in zip(columns, schema.fields, strict=True)
    ]


def encode_column(values: Sequence[Any], type_: DataType, *, nullable: bool = True) -> pa.Array:
    """Return the values of one column as an Arrow array; raises as `encode_rows`.

    If all values have the one Python type of the declared type, Arrow converts them directly.
    Otherwise each value is checked first, because Arrow alone would round 1.5 to 1 and take text
    for bytes.
    """
    classes = set(map(type, values))
    if not nullable and type(None) in classes:
        message = "NOT NULL"
        raise ValueError(message)
    if type_.kind == "ARRAY" and classes <= _LISTS:
        return _encode_lists(values, type_)
    if not classes <= EXACT.get(type_.kind, _NOTHING):
        values = [typed(value, type_) for value in values]
    return pa.array(values, arrow_type(type_))


def _encode_lists(values: Sequence[Any], type_: DataType) -> pa.Array:
    sizes = [0 if value is None else len(value) for value in values]
    ends = np.cumsum([0, *sizes])
    whole = arrow_type(type_)
    if ends[-1] > np.iinfo(np.int32).max:
        return pa.array([typed(value, type_) for value in values], whole)
    items = encode_column(list(chain.from_iterable(filter(None, values))), type_.arguments[0])
    missing = pa.array([value is None for value in values]) if None in values else None
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items, type=whole, mask=missing)


def check_row(row: Row, schema: Schema, emit: str) -> None:
    """Raise a `TypeError` that names the column, the value and the declared type."""
    emitted_row(row, schema, emit)
