"""Parquet reader: columns by name, with the types of `arrow_columns`.

The decoded size of a file is bounded from its page headers (`bounds`), and counted while it
is decoded. Rejected: text that is not UTF-8; a file with a wrong footer, wrong pages, a page whose
checksum is not that of its bytes, or a wrong number of values or rows; an encrypted file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from cbp.model.flow.schema import Schema
from controller.ingest.formats.arrow_columns import ArrowColumns
from controller.ingest.formats.bad_lines import BadLines
from controller.ingest.formats.compression import check_expansion
from controller.ingest.formats.content import ClaimedContent
from controller.ingest.formats.notes import Notes
from controller.ingest.formats.parquet.bounds import Bounds, decoded_bytes
from controller.ingest.formats.parquet.int96_columns import Int96Columns, Unit
from controller.ingest.formats.parquet.pages import (
    ENCRYPTED_MAGIC,
    FOOTER_BYTES_MAX,
    PLAIN_MAGIC,
    check_footer,
)
from controller.ingest.limits import IngestLimits
from controller.ingest.rejection import FileRejectedError
from controller.values import ValueRules, excerpt

__all__ = ["Keep", "damaged", "keep_all", "open_parquet", "read_parquet"]

Keep = Callable[[pa.RecordBatch, int], pa.RecordBatch]
"""Returns the rows of a batch that are wanted; the number is the first row's place in its file."""

_BUFFER_BYTES = 1 << 20
_WRONG = "\0wrong"
"""Ends the names of columns that say what is wrong in another one; no declared column has it."""
_INT96 = (
    "expected TIMESTAMP, got {} as INT96, which is outside of the years 1 to 9999 or has "
    "nanoseconds; write microseconds, in INT64"
)


def keep_all(batch: pa.RecordBatch, _first: int) -> pa.RecordBatch:
    """Return every row."""
    return batch


def read_parquet(
    content: ClaimedContent,
    schema: Schema,
    rules: ValueRules,
    limits: IngestLimits,
    notes: Notes,
    bad: BadLines,
    *,
    keep: Keep = keep_all,
    line: int = 0,
    aside: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Hash the file, then yield its records in order, up to the first wrong one.

    Args:
        content: The claimed copy, or a file of a table.
        schema, rules, limits, notes, bad: As for `read_batches`.
        keep: Takes rows out before they are checked.
        line: Number of rows before those of this file, from which wrong ones are counted.
        aside: Columns of the file that are left out, whatever the rules are.

    Wrong rows go to `bad`: `value_range`, `value_missing`.

    Raises:
        FileRejectedError: `format_mismatch`, a `parquet_...` rule, `column_type`,
            `column_missing`, `column_unknown`, `line_too_long`, `decompression_ratio` or
            `decompressed_too_large`.
    """
    if content.peek(4) not in (PLAIN_MAGIC, ENCRYPTED_MAGIC):
        raise FileRejectedError(rule="format_mismatch", message="the content is not Parquet")
    content.finish()
    try:
        yield from _Reader(content, schema, rules, limits, notes, bad, keep, line, aside).batches()
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, OverflowError, UnicodeDecodeError) as exc:
        if isinstance(exc, OSError) and exc.errno:
            raise
        raise damaged(exc) from exc


def damaged(error: Exception) -> FileRejectedError:
    """Return the rejection of a file that Arrow cannot read."""
    said = str(error)
    message = f"the Parquet file is damaged or cut, or breaks a rule of the format: {excerpt(said)}"
    if "checksum" in said:
        message = "a page of the Parquet file is damaged: its bytes are not those of its checksum"
    return FileRejectedError(rule="parquet_damaged", message=message, cause=excerpt(said))


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
        keep: Keep,
        line: int,
        aside: Collection[str],
    ) -> None:
        self._content, self._limits, self._bad = content, limits, bad
        self._keep, self._line = keep, line
        file = content.seekable()
        check_footer(file.fileno(), content.size)
        whole = open_parquet(file)
        self._columns = ArrowColumns(schema, rules, bad)
        columns = [field for field in whole.schema_arrow if field.name not in aside]
        self._present = self._columns.present(pa.schema(columns), notes)
        self._metadata = whole.metadata
        self._bounds = Bounds.of(file.fileno(), content.size, whole, self._present, limits)
        self._file = open_parquet(file, self._bounds.as_dictionaries)
        self._int96 = Int96Columns(
            whole,
            self._present,
            lambda unit: open_parquet(file, self._bounds.as_dictionaries, unit=unit),
            self._bounds.batch_rows,
        )
        self._rows = self._decoded = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        for row_batch in self._file.iter_batches(
            batch_size=self._bounds.batch_rows, columns=self._present, use_threads=False
        ):
            marked = _marked(*self._int96.checked(row_batch))
            for part in _small(marked, self._limits.row_group_bytes, self._rows):
                batch = self._batch(part)
                if batch is not None:
                    yield batch
                self._bad.check(part.num_rows)
        if self._rows != self._metadata.num_rows:
            message = f"the footer says {self._metadata.num_rows} rows, the pages hold {self._rows}"
            raise FileRejectedError(rule="parquet_damaged", message=message)

    def _batch(self, part: pa.RecordBatch) -> pa.RecordBatch | None:
        kept = self._keep(part, self._rows)
        lines = range(self._line + 1, self._line + 1 + kept.num_rows)
        self._rows, self._line = self._rows + part.num_rows, self._line + kept.num_rows
        batch = self._columns.batch(self._unmarked(kept, lines), lines)
        if batch is not None:
            self._decoded += batch.nbytes
            check_expansion(self._decoded, self._content.size, self._limits)
        return batch

    def _unmarked(self, batch: pa.RecordBatch, lines: Sequence[int]) -> pa.RecordBatch:
        """Report the rows that are marked as wrong; return the batch without the marks."""
        marks = [name for name in batch.schema.names if name.endswith(_WRONG)]
        for name in marks:
            column = name.removesuffix(_WRONG)
            for at, shown in enumerate(batch.column(name).to_pylist()):
                if shown is not None:
                    message = _INT96.format(shown)
                    self._bad.add("value_range", message, line=lines[at], column=column)
        return batch.drop_columns(marks) if marks else batch


def _marked(batch: pa.RecordBatch, wrong: Mapping[str, Mapping[int, str]]) -> pa.RecordBatch:
    """Return a batch with a column more for each that has wrong rows: what is wrong, or null."""
    for name, rows in wrong.items():
        marks = pa.array([rows.get(at) for at in range(batch.num_rows)], pa.string())
        batch = batch.append_column(f"{name}{_WRONG}", marks)
    return batch


def open_parquet(
    file: BinaryIO, as_dictionaries: Sequence[str] = (), *, unit: Unit = "us"
) -> pq.ParquetFile:
    """Open a file that is not trusted; its checksums are verified while it is read.

    Args:
        file: The file.
        as_dictionaries: Paths of columns that are read as dictionaries.
        unit: Unit of times that are INT96.
    """
    return pq.ParquetFile(
        file,
        coerce_int96_timestamp_unit=unit,
        page_checksum_verification=True,
        buffer_size=_BUFFER_BYTES,
        pre_buffer=False,
        read_dictionary=list(as_dictionaries),
        thrift_string_size_limit=FOOTER_BYTES_MAX,
        thrift_container_size_limit=1_000_000,
        arrow_extensions_enabled=False,  # a UUID is its bytes, and JSON its text
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
