"""Parquet: columns by name, cast only where no value can change.

Accepted are the declared type, other widths of the same kind when every value
fits, and dictionaries of it. A timestamp without a zone is UTC. Columns that the
schema lacks are left out and noted; a column that the file lacks is null.
Rejected: anything else, with the column and the row; text that is not UTF-8; a
file whose footer, pages or row count are wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from cbp.engine.arrow import arrow_schema, arrow_type
from cbp.model.schema import DataType, Field, Schema
from controller.ingest.columns import check_not_null
from controller.ingest.content import ClaimedContent
from controller.ingest.limits import IngestLimits
from controller.ingest.notes import Notes
from controller.ingest.rejection import FileRejectedError
from controller.values import excerpt

__all__ = ["read_parquet"]

_MAGIC = b"PAR1"
_BUFFER_BYTES = 1 << 20


def read_parquet(
    content: ClaimedContent, schema: Schema, limits: IngestLimits, notes: Notes
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a file in order; the file is hashed first.

    Raises:
        FileRejectedError: `format_mismatch`, `parquet_damaged`, `column_type`,
            `column_missing`, `value_range`, `value_missing` or `decompressed_too_large`.
    """
    if content.peek(4) != _MAGIC:
        raise FileRejectedError(rule="format_mismatch", message="the content is not Parquet")
    content.finish()
    try:
        yield from _batches(content, schema, limits, notes)
    except (pa.ArrowException, OSError, OverflowError) as exc:
        if isinstance(exc, OSError) and exc.errno:
            raise
        message = "the Parquet file is damaged or cut"
        raise FileRejectedError(
            rule="parquet_damaged", message=message, cause=excerpt(str(exc))
        ) from exc


def _batches(
    content: ClaimedContent, schema: Schema, limits: IngestLimits, notes: Notes
) -> Iterator[pa.RecordBatch]:
    file = pq.ParquetFile(content.seekable(), buffer_size=_BUFFER_BYTES, pre_buffer=False)
    _check_size(file.metadata, limits)
    found = file.schema_arrow
    _check_columns(schema, found)
    notes.extra_columns(set(found.names) - set(schema.names))
    present = [name for name in schema.names if name in found.names]
    notes.missing = tuple(name for name in schema.names if name not in found.names)
    target, rows = arrow_schema(schema), 0
    for batch in file.iter_batches(
        batch_size=limits.batch_rows, columns=present, use_threads=False
    ):
        lines = range(rows + 1, rows + 1 + batch.num_rows)
        arrays = [_column(batch, field, lines) for field in schema.fields]
        rows += batch.num_rows
        yield pa.record_batch(arrays, schema=target)
    if rows != file.metadata.num_rows:
        message = f"the footer says {file.metadata.num_rows} rows, the pages hold {rows}"
        raise FileRejectedError(rule="parquet_damaged", message=message)


def _check_size(metadata: Any, limits: IngestLimits) -> None:
    total = sum(metadata.row_group(at).total_byte_size for at in range(metadata.num_row_groups))
    if total > limits.decompressed_bytes_max:
        message = f"decompresses to more than {limits.decompressed_bytes_max} bytes"
        raise FileRejectedError(rule="decompressed_too_large", message=message)


def _check_columns(schema: Schema, found: pa.Schema) -> None:
    has = excerpt(", ".join(found.names))
    if not set(found.names) & set(schema.names):
        message = f"has none of the declared columns {', '.join(schema.names)}; it has {has}"
        raise FileRejectedError(rule="column_missing", message=message)
    for field in schema.fields:
        if found.names.count(field.name) > 1:
            message = "stands twice in the file"
            raise FileRejectedError(rule="column_type", message=message, column=field.name)
        if field.name not in found.names:
            if not field.nullable:
                message = f"the file lacks a column that is NOT NULL; it has {has}"
                raise FileRejectedError(rule="column_missing", message=message, column=field.name)
        elif not _fits(field.type, found.field(field.name).type):
            message = f"expected {field.type}, got {found.field(field.name).type}"
            raise FileRejectedError(rule="column_type", message=message, column=field.name)


def _column(batch: pa.RecordBatch, field: Field, lines: range) -> pa.Array:
    target = arrow_type(field.type)
    if field.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, target)
    found = batch.column(field.name)
    found.validate(full=True)
    try:
        array = found if found.type == target else found.cast(target, safe=True)
    except pa.ArrowNotImplementedError as exc:
        message = f"expected {field.type}, got {found.type}"
        raise FileRejectedError(rule="column_type", message=message, column=field.name) from exc
    except pa.ArrowInvalid as exc:
        _name_row(found, field, target, lines, exc)
    check_not_null(field, array, lines)
    return array


def _name_row(
    found: pa.Array, field: Field, target: pa.DataType, lines: range, error: Exception
) -> NoReturn:
    line, shown = lines[0], "a value"
    for at, candidate in enumerate(lines):
        try:
            found.slice(at, 1).cast(target, safe=True)
        except pa.ArrowInvalid:
            line, shown = candidate, excerpt(str(found[at]))
            break
    message = f"expected {field.type}, got {shown} ({found.type}), which does not fit exactly"
    raise FileRejectedError(
        rule="value_range", message=message, line=line, column=field.name, cause=excerpt(str(error))
    ) from error


def _fits(declared: DataType, found: pa.DataType) -> bool:
    """Whether a column of this Arrow type may hold values of the declared type."""
    if pt.is_null(found):
        return True
    if pt.is_dictionary(found):
        return _fits(declared, found.value_type)
    if declared.kind == "ARRAY":
        lists = (pt.is_list(found), pt.is_large_list(found), pt.is_fixed_size_list(found))
        return any(lists) and _fits(declared.arguments[0], found.value_type)
    if declared.kind == "MAP":
        return (
            pt.is_map(found)
            and _fits(declared.arguments[0], found.key_type)
            and _fits(declared.arguments[1], found.item_type)
        )
    if declared.kind == "STRUCT":
        return pt.is_struct(found) and all(
            found.get_field_index(name) >= 0 and _fits(type_, found.field(name).type)
            for name, type_ in zip(declared.names, declared.arguments, strict=True)
        )
    return _SAME_KIND[declared.kind](found)


def _is_text(found: pa.DataType) -> bool:
    return bool(pt.is_string(found) or pt.is_large_string(found) or pt.is_string_view(found))


def _is_bytes(found: pa.DataType) -> bool:
    return bool(pt.is_binary(found) or pt.is_large_binary(found) or pt.is_fixed_size_binary(found))


_SAME_KIND: dict[str, Callable[[pa.DataType], bool]] = {
    "STRING": _is_text,
    "BIGINT": pt.is_integer,
    "INT": pt.is_integer,
    "SMALLINT": pt.is_integer,
    "TINYINT": pt.is_integer,
    "DOUBLE": pt.is_floating,
    "FLOAT": lambda found: bool(pt.is_float32(found) or pt.is_float16(found)),
    "BOOLEAN": pt.is_boolean,
    "BINARY": _is_bytes,
    "DATE": pt.is_date32,
    "TIMESTAMP": pt.is_timestamp,
    "DECIMAL": pt.is_decimal,
}
