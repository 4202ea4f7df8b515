"""Avro reader: object container files, with the schema that they carry; types of `arrow_columns`.

Written here since what reads Avro beside it accepts damaged files in silence: an int of more than
32 bits, a branch that a union lacks, bytes behind the last record of a block
(tests/controller/ingest/formats/test_avro.py has them).

Memory holds one block, at most `row_group_bytes`, and one batch of records.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Any, NoReturn

import pyarrow as pa

from cbp.model.flow.schema import Schema
from controller.ingest.formats.arrow_columns import ArrowColumns
from controller.ingest.formats.avro import AvroType
from controller.ingest.formats.avro_container import AvroBlock, AvroContainer
from controller.ingest.formats.avro_schema import record_fields
from controller.ingest.formats.bad_lines import BadLines
from controller.ingest.formats.content import ClaimedContent
from controller.ingest.formats.notes import Notes
from controller.ingest.limits import IngestLimits
from controller.ingest.rejection import FileRejectedError
from controller.values import ValueRules, excerpt

__all__ = ["read_avro"]

_BATCH_BYTES = 8 << 20
"""Encoded bytes that are converted at a time."""


def read_avro(
    content: ClaimedContent,
    schema: Schema,
    rules: ValueRules,
    limits: IngestLimits,
    notes: Notes,
    bad: BadLines,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a file in order, up to the first wrong one.

    Wrong rows go to `bad`: `value_range`, `value_missing`.

    Raises:
        FileRejectedError: `format_mismatch`, an `avro_...` rule, `column_type`,
            `column_missing`, `column_unknown`, `line_too_long`, `compression_unsupported`,
            `decompression_ratio` or `decompressed_too_large`.
    """
    container = AvroContainer(content, limits)
    try:
        records = _Records(record_fields(container.schema), schema, limits)
        columns = ArrowColumns(schema, rules, bad)
        records.keep(columns.present(records.schema, notes))
        for block in container.blocks():
            for part, first in records.batches(block):
                batch = columns.batch(part, range(first, first + part.num_rows))
                if batch is not None:
                    yield batch
                bad.check(part.num_rows)
    except (pa.ArrowException, UnicodeError, OverflowError) as exc:
        message = "a value of the Avro file has no meaning"
        raise FileRejectedError(
            rule="avro_damaged", message=message, cause=excerpt(str(exc))
        ) from exc


class _Records:
    """Decodes blocks of records."""

    def __init__(
        self, fields: list[tuple[str, AvroType]], declared: Schema, limits: IngestLimits
    ) -> None:
        self._fields, self._limits, self._rows = fields, limits, 0
        self._decoders = [type_.decode for _, type_ in fields]
        self._kept: list[tuple[int, str, pa.DataType]] = []
        for name, type_ in fields:
            if type_.arrow is None and name in declared.names:
                message = f"expected {declared[name].type}, got Avro's {type_.name}"
                raise FileRejectedError(rule="column_type", message=message, column=name[:100])

    @property
    def schema(self) -> pa.Schema:
        """The file's columns; one whose type Arrow lacks is there by name only."""
        fields = [(name, pa.null() if t.arrow is None else t.arrow) for name, t in self._fields]
        return pa.schema(fields)

    def keep(self, names: list[str]) -> None:
        """Convert only these columns."""
        fields = enumerate(self._fields)
        self._kept = [(at, name, type_.arrow) for at, (name, type_) in fields if name in names]

    def batches(self, block: AvroBlock) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the records of a block, and the number of the first of each batch."""
        data, at, begun = block.data, 0, 0
        if block.count > len(data):
            _damaged(f"a block of {len(data)} bytes says that it has {block.count} records")
        rows = list[list[Any]]()
        for number in range(self._rows + 1, self._rows + 1 + block.count):
            row, end = self._row(data, at, number)
            rows.append(row)
            at = end
            if len(rows) >= self._limits.batch_rows or at - begun >= _BATCH_BYTES:
                yield self._batch(rows)
                rows, begun = [], at
        if at != len(data):
            _damaged(f"{len(data) - at} bytes follow the last record of a block")
        if rows:
            yield self._batch(rows)

    def _row(self, data: bytes, begin: int, number: int) -> tuple[list[Any], int]:
        row, at = list[Any](), begin
        try:
            for decode in self._decoders:
                value, at = decode(data, at)
                row.append(value)
        except (IndexError, ValueError) as exc:
            cut = isinstance(exc, IndexError)
            raise FileRejectedError(
                rule="avro_damaged",
                message="the block ends inside of this value" if cut else f"got {str(exc)[:200]}",
                line=number,
                column=self._fields[len(row)][0][:100],
                cause=excerpt(str(exc)),
            ) from exc
        bytes_max = self._limits.line_bytes_max
        if at - begin > bytes_max:
            message = f"the record has {at - begin} bytes, at most {bytes_max} are taken"
            raise FileRejectedError(rule="line_too_long", message=message, line=number)
        return row, at

    def _batch(self, rows: list[list[Any]]) -> tuple[pa.RecordBatch, int]:
        first = self._rows + 1
        self._rows += len(rows)
        arrays = [pa.array(map(itemgetter(at), rows), type_) for at, _, type_ in self._kept]
        return pa.record_batch(arrays, names=[name for _, name, _ in self._kept]), first


def _damaged(message: str) -> NoReturn:
    raise FileRejectedError(rule="avro_damaged", message=message)
