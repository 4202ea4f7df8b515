"""Parquet reader: columns by name, cast only where no value can change.

Accepted: the declared type, other widths of the same kind when every value fits, and dictionaries
of it. A timestamp without a zone is accepted if the source names a zone. A column that the file
lacks is null. A column that the schema lacks is rejected unless the source ignores these. The
decoded size of a file is bounded from its page headers (`parquet_bounds`), and counted while it is
decoded.
Rejected: anything else, with the column and the row; text that is not UTF-8; a file with a wrong
footer, wrong pages or a wrong row count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC
from typing import BinaryIO
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from cbp.engine.columnar.arrow_types import arrow_schema, arrow_type
from cbp.model.flow.schema import DataType, Field, Schema
from controller.ingest.bad_lines import LINES_MAX, BadLines
from controller.ingest.columns import note_nulls, unknown_column
from controller.ingest.content import ClaimedContent, check_expansion
from controller.ingest.limits import IngestLimits
from controller.ingest.notes import Notes
from controller.ingest.parquet_bounds import Bounds, decoded_bytes
from controller.ingest.parquet_pages import FOOTER_BYTES_MAX, check_footer
from controller.ingest.rejection import FileRejectedError
from controller.values import ValueRules, excerpt

__all__ = ["read_parquet"]

_MAGIC = b"PAR1"
_BUFFER_BYTES = 1 << 20


def read_parquet(
    content: ClaimedContent,
    schema: Schema,
    rules: ValueRules,
    limits: IngestLimits,
    notes: Notes,
    bad: BadLines,
) -> Iterator[pa.RecordBatch]:
    """Hash the file, then yield its records in order, up to the first wrong one.

    Wrong rows go to `bad`: `value_range`, `value_missing`.

    Raises:
        FileRejectedError: `format_mismatch`, a `parquet_...` rule, `column_type`,
            `column_missing`, `column_unknown`, `line_too_long`, `decompression_ratio` or
            `decompressed_too_large`.
    """
    if content.peek(4) != _MAGIC:
        raise FileRejectedError(rule="format_mismatch", message="the content is not Parquet")
    content.finish()
    try:
        yield from _Reader(content, schema, rules, limits, notes, bad).batches()
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, OverflowError, UnicodeDecodeError) as exc:
        if isinstance(exc, OSError) and exc.errno:
            raise
        message = "the Parquet file is damaged or cut"
        raise FileRejectedError(
            rule="parquet_damaged", message=message, cause=excerpt(str(exc))
        ) from exc


class _Reader:
    """Reads one file."""

    def __init__(
        self,
        content: ClaimedContent,
        schema: Schema,
        rules: ValueRules,
        limits: IngestLimits,
        notes: Notes,
        bad: BadLines,
    ) -> None:
        self._content, self._schema, self._rules = content, schema, rules
        self._limits, self._bad = limits, bad
        file = content.seekable()
        check_footer(file.fileno(), content.size)
        whole = _open(file)
        _check_columns(schema, whole.schema_arrow, rules)
        names = whole.schema_arrow.names
        notes.extra_columns(set(names) - set(schema.names))
        self._present = [name for name in schema.names if name in names]
        notes.missing = tuple(name for name in schema.names if name not in names)
        self._metadata = whole.metadata
        self._bounds = Bounds.of(file.fileno(), content.size, whole, self._present, limits)
        self._file = _open(file, self._bounds.as_dictionaries)
        self._target = arrow_schema(schema)
        self._rows = self._decoded = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        for row_batch in self._file.iter_batches(
            batch_size=self._bounds.batch_rows, columns=self._present, use_threads=False
        ):
            for part in _small(row_batch, self._limits.row_group_bytes, self._rows):
                batch = self._batch(part)
                if batch is not None and not self._bad:
                    yield batch
                self._bad.check(part.num_rows)
        if self._rows != self._metadata.num_rows:
            message = f"the footer says {self._metadata.num_rows} rows, the pages hold {self._rows}"
            raise FileRejectedError(rule="parquet_damaged", message=message)

    def _batch(self, part: pa.RecordBatch) -> pa.RecordBatch | None:
        lines = range(self._rows + 1, self._rows + 1 + part.num_rows)
        self._rows += part.num_rows
        arrays = [self._column(part, field, lines) for field in self._schema.fields]
        if any(array is None for array in arrays):
            return None
        batch = pa.record_batch(arrays, schema=self._target)
        self._decoded += batch.nbytes
        check_expansion(self._decoded, self._content.size, self._limits)
        return batch

    def _column(self, part: pa.RecordBatch, field: Field, lines: range) -> pa.Array | None:
        target = arrow_type(field.type)
        if field.name not in part.schema.names:
            return pa.nulls(part.num_rows, target)
        values = part.column(field.name)
        values.validate(full=True)
        try:
            array = _converted(values, target, self._rules)
        except pa.ArrowNotImplementedError as exc:
            message = f"expected {field.type}, got {values.type}"
            raise FileRejectedError(rule="column_type", message=message, column=field.name) from exc
        except pa.ArrowInvalid as exc:
            self._note_rows(values, field, target, lines, exc)
            return None
        return array if note_nulls(field, array, lines, self._bad) else None

    def _note_rows(
        self, found: pa.Array, field: Field, target: pa.DataType, lines: range, error: Exception
    ) -> None:
        """Report the rows that do not fit; if each row fits alone, report the first one."""
        cause, noted = excerpt(str(error)), 0
        for at, line in enumerate(lines):
            try:
                _converted(found.slice(at, 1), target, self._rules)
            except pa.ArrowInvalid:
                shown = excerpt(str(found[at]))
                message = f"expected {field.type}, got {shown} ({found.type}), which does not fit"
                self._bad.add("value_range", message, line=line, column=field.name, cause=cause)
                noted += 1
                if noted == LINES_MAX:
                    return
        if not noted:
            message = f"expected {field.type}, got a value ({found.type}) that does not fit"
            self._bad.add("value_range", message, line=lines[0], column=field.name, cause=cause)


def _open(file: BinaryIO, as_dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
    return pq.ParquetFile(
        file,
        buffer_size=_BUFFER_BYTES,
        pre_buffer=False,
        read_dictionary=list(as_dictionaries),
        thrift_string_size_limit=FOOTER_BYTES_MAX,
        thrift_container_size_limit=1_000_000,
    )


def _small(batch: pa.RecordBatch, bytes_max: int, before: int) -> Iterator[pa.RecordBatch]:
    """Cut a batch into parts that stay small once their dictionaries are decoded."""
    size = sum(decoded_bytes(column) for column in batch.columns)
    if size <= bytes_max:
        yield batch
        return
    if batch.num_rows == 1:
        message = f"the row decodes to {size} bytes, at most {bytes_max} are taken"
        raise FileRejectedError(rule="line_too_long", message=message, line=before + 1)
    half = batch.num_rows // 2
    yield from _small(batch.slice(0, half), bytes_max, before)
    yield from _small(batch.slice(half), bytes_max, before + half)


def _converted(found: pa.Array, target: pa.DataType, rules: ValueRules) -> pa.Array:
    """Return a column in its declared type; fails where a value would change."""
    if found.type == target:
        return found
    if pt.is_timestamp(found.type) and found.type.tz is None and rules.zone is not UTC:
        assert rules.zone is not None, "checked by _fits"
        if isinstance(rules.zone, ZoneInfo):
            found = pc.assume_timezone(found, rules.zone.key)
        else:
            exact = found.cast(pa.timestamp("us"), safe=True)
            found = pc.subtract_checked(exact, pa.scalar(rules.zone.utcoffset(None)))
    return found.cast(target, safe=True)


def _check_columns(schema: Schema, found: pa.Schema, rules: ValueRules) -> None:
    names, known = Counter(found.names), set(schema.names)
    has = excerpt(", ".join(found.names[:100]))
    if not names.keys() & known:
        message = (
            f"has none of the declared columns {excerpt(', '.join(schema.names))}; it has {has}"
        )
        raise FileRejectedError(rule="column_missing", message=message)
    unknown = next((name for name in found.names if name not in known), None)
    if unknown is not None and not rules.ignore_unknown:
        message = unknown_column(unknown, schema.names)
        raise FileRejectedError(rule="column_unknown", message=message, column=unknown[:100])
    for field in schema.fields:
        if names[field.name] > 1:
            message = "stands twice in the file"
            raise FileRejectedError(rule="column_type", message=message, column=field.name)
        if field.name not in names:
            if not field.nullable:
                message = f"the file lacks a column that is NOT NULL; it has {has}"
                raise FileRejectedError(rule="column_missing", message=message, column=field.name)
        else:
            type_ = found.field(field.name).type
            if not _fits(field.type, type_, rules):
                shown = str(type_)[:200]
                message = f"expected {field.type}, got {shown}{_hint(field.type, type_, rules)}"
                raise FileRejectedError(rule="column_type", message=message, column=field.name)


def _hint(declared: DataType, found: pa.DataType, rules: ValueRules) -> str:
    if not _fits(declared, found, replace(rules, zone=UTC)):
        return ""
    return (
        ", times without a zone; write them with one, or name it in the source: "
        'options: {timezone: "UTC"}'
    )


def _fits(declared: DataType, found: pa.DataType, rules: ValueRules, *, top: bool = True) -> bool:
    """Return whether a column of this Arrow type may hold values of the declared type."""

    def inner(declared: DataType, found: pa.DataType) -> bool:
        return _fits(declared, found, rules, top=False)

    if pt.is_null(found):
        return True
    if pt.is_dictionary(found):
        return inner(declared, found.value_type)
    if declared.kind == "ARRAY":
        lists = (pt.is_list(found), pt.is_large_list(found), pt.is_fixed_size_list(found))
        return any(lists) and inner(declared.arguments[0], found.value_type)
    if declared.kind == "MAP":
        return (
            pt.is_map(found)
            and inner(declared.arguments[0], found.key_type)
            and inner(declared.arguments[1], found.item_type)
        )
    if declared.kind == "STRUCT":
        return (
            pt.is_struct(found)
            and all(
                found.get_field_index(name) >= 0 and inner(type_, found.field(name).type)
                for name, type_ in zip(declared.names, declared.arguments, strict=True)
            )
            and (rules.ignore_unknown or found.num_fields == len(declared.names))
        )
    if declared.kind == "TIMESTAMP" and pt.is_timestamp(found) and found.tz is None:
        return rules.zone is UTC or (top and rules.zone is not None)
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
