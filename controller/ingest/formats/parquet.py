"""Parquet reader: columns by name, with the types of `arrow_columns`.

The decoded size of a file is bounded from its page headers (`parquet_bounds`), and counted while it
is decoded. Rejected: text that is not UTF-8; a file with a wrong footer, wrong pages or a wrong row
count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from cbp.model.flow.schema import Schema
from controller.ingest.formats.arrow_columns import ArrowColumns
from controller.ingest.formats.bad_lines import BadLines
from controller.ingest.formats.compression import check_expansion
from controller.ingest.formats.content import ClaimedContent
from controller.ingest.formats.notes import Notes
from controller.ingest.formats.parquet_bounds import Bounds, decoded_bytes
from controller.ingest.formats.parquet_pages import FOOTER_BYTES_MAX, check_footer
from controller.ingest.limits import IngestLimits
from controller.ingest.rejection import FileRejectedError
from controller.values import ValueRules, excerpt

__all__ = ["Keep", "keep_all", "read_parquet"]

Keep = Callable[[pa.RecordBatch, int], pa.RecordBatch]
"""Returns the rows of a batch that are wanted; the number is the first row's place in its file."""

_MAGIC = b"PAR1"
_BUFFER_BYTES = 1 << 20


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
    if content.peek(4) != _MAGIC:
        raise FileRejectedError(rule="format_mismatch", message="the content is not Parquet")
    content.finish()
    try:
        yield from _Reader(content, schema, rules, limits, notes, bad, keep, line, aside).batches()
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
        keep: Keep,
        line: int,
        aside: Collection[str],
    ) -> None:
        self._content, self._limits, self._bad = content, limits, bad
        self._keep, self._line = keep, line
        file = content.seekable()
        check_footer(file.fileno(), content.size)
        whole = _open(file)
        self._columns = ArrowColumns(schema, rules, bad)
        columns = [field for field in whole.schema_arrow if field.name not in aside]
        self._present = self._columns.present(pa.schema(columns), notes)
        self._metadata = whole.metadata
        self._bounds = Bounds.of(file.fileno(), content.size, whole, self._present, limits)
        self._file = _open(file, self._bounds.as_dictionaries)
        self._rows = self._decoded = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        for row_batch in self._file.iter_batches(
            batch_size=self._bounds.batch_rows, columns=self._present, use_threads=False
        ):
            for part in _small(row_batch, self._limits.row_group_bytes, self._rows):
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
        batch = self._columns.batch(kept, lines)
        if batch is not None:
            self._decoded += batch.nbytes
            check_expansion(self._decoded, self._content.size, self._limits)
        return batch


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
