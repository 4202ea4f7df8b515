"""Arrow types of a schema: one mapping, used for every file that is read or written.

Strings are `string` here. A reader of large batches may widen them to `large_string`
(`wide=True`), because one Arrow string column ends at 2 GB and a Parquet column does not.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cbp.model.flow.schema import DataType, Schema

Mask = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]
"""Hashes, counts, or the numbers that identify rows, groups and files."""

_ATOMS: dict[str, pa.DataType] = {
    "STRING": pa.string(),
    "BIGINT": pa.int64(),
    "INT": pa.int32(),
    "SMALLINT": pa.int16(),
    "TINYINT": pa.int8(),
    "DOUBLE": pa.float64(),
    "FLOAT": pa.float32(),
    "BOOLEAN": pa.bool_(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
}
_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
_WIDE = {"STRING": pa.large_string(), "BINARY": pa.large_binary()}


def arrow_type(type_: DataType, *, wide: bool = False) -> pa.DataType:
    """Return the Arrow type of a column."""
    if type_.kind == "DECIMAL":
        return pa.decimal128(type_.precision, type_.scale)
    parts = [arrow_type(argument, wide=wide) for argument in type_.arguments]
    if type_.kind == "ARRAY":
        return pa.list_(parts[0])
    if type_.kind == "MAP":
        return pa.map_(parts[0], parts[1])
    if type_.kind == "STRUCT":
        return pa.struct(list(zip(type_.names, parts, strict=True)))
    return (_WIDE.get(type_.kind) if wide else None) or _ATOMS[type_.kind]


@lru_cache(maxsize=1024)
def arrow_schema(schema: Schema, *, wide: bool = False) -> pa.Schema:
    """Return the Arrow schema of a flow; nullability is kept."""
    columns = [(f.name, arrow_type(f.type, wide=wide), f.nullable) for f in schema.fields]
    return pa.schema([pa.field(*column) for column in columns])


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with the columns of `schema`, in its order; free if it has them already.

    A column that was added later is filled with null; a narrower number is widened. Strings and
    nested values keep the file's type. Files of an output increment never change, and may wait in a
    queue while their flow's schema evolves, so their readers conform them. State is rewritten
    instead. Raises `ArrowInvalid` if the schema was not extended but changed.
    """
    columns = []
    for field in schema:
        at = table.schema.get_field_index(field.name)
        column = pa.nulls(table.num_rows, field.type) if at < 0 else table.column(at)
        if column.type != field.type and any(is_(field.type) for is_ in _NUMBERS):
            column = column.cast(field.type)
        columns.append(column)
    return pa.table(columns, names=schema.names)


def with_types(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table in a schema's types, as `Table.cast` does; free for columns that have them.

    Raises `ValueError` for other names, or a null in a NOT NULL column; `ArrowInvalid` for a value
    that does not fit.
    """
    own = table.schema
    if own.names != schema.names:
        message = f"expected the columns {schema.names}, got {own.names}"
        raise ValueError(message)
    columns = table.columns
    for at, (mine, field) in enumerate(zip(own, schema, strict=True)):
        if not field.nullable and columns[at].null_count:
            message = f"column {field.name!r} is NOT NULL, but has a null"
            raise ValueError(message)
        if mine.type != field.type:
            columns[at] = columns[at].cast(field.type)
    return pa.Table.from_arrays(columns, schema=schema)


def as_type(column: pa.Array | pa.ChunkedArray, type_: pa.DataType) -> Any:
    """Return a column in a type; skips a cast to the same type, which would take 15 us."""
    return column if column.type == type_ else column.cast(type_)
