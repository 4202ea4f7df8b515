"""Decides from page headers how to decode a Parquet file in bounded memory.

A page holds at most as many bytes as its header says, with two exceptions. A value may refer to a
dictionary or to the value before it, so that data repeats: 1,200 rows of a text of a megabyte take
297 bytes. A column that may become large in this way is read as a dictionary, and decoded in parts
of known size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from controller.ingest.formats.compression import check_expansion
from controller.ingest.formats.parquet_pages import (
    DELTA_BYTE_ARRAY,
    DICTIONARY_PAGE,
    ENCRYPTED,
    encrypted_columns,
    pages,
)
from controller.ingest.limits import IngestLimits
from controller.ingest.rejection import FileRejectedError
from controller.values import excerpt

__all__ = ["Bounds", "decoded_bytes"]

PAGE_BYTES_MAX = 256 << 20
CHUNKS_MAX = 500_000
REPEATED_BYTES_MAX = 16 << 20
"""Bytes that a column may repeat to before it is read as a dictionary."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How to read a file.

    Attributes:
        as_dictionaries: Paths of columns that are read as dictionaries.
        batch_rows: Rows that are read at a time.
    """

    as_dictionaries: tuple[str, ...]
    batch_rows: int

    @classmethod
    def of(
        cls,
        handle: int,
        size: int,
        file: pq.ParquetFile,
        present: Sequence[str],
        limits: IngestLimits,
    ) -> Bounds:
        """Examine the header of every page of these columns.

        Args:
            handle: The open file.
            size: Its bytes.
            file: The same file, opened by pyarrow.
            present: Columns that will be read.
            limits: Limits of the file.

        Raises:
            FileRejectedError: `parquet_limits`, `parquet_damaged`, `parquet_encrypted`,
                `decompression_ratio` or `decompressed_too_large`.
        """
        metadata = file.metadata
        columns = [at for at in range(metadata.num_columns) if _top(metadata, at) in present]
        if encrypted := encrypted_columns(handle, size).intersection(columns):
            name = metadata.schema.column(min(encrypted)).path
            raise FileRejectedError(rule="parquet_encrypted", message=ENCRYPTED, column=name[:100])
        if metadata.num_row_groups * len(columns) > CHUNKS_MAX:
            message = f"has more than {CHUNKS_MAX} column chunks; write larger row groups"
            raise FileRejectedError(rule="parquet_limits", message=message)
        sums = _PageTotals(limits)
        for group in range(metadata.num_row_groups):
            row_group = metadata.row_group(group)
            for at in columns:
                chunk = row_group.column(at)
                values, rows = sums.add(handle, size, chunk)
                _require_count(chunk, "values", values, chunk.num_values)
                _require_count(chunk, "rows", rows, row_group.num_rows)
                if metadata.schema.column(at).max_repetition_level == 0:
                    _require_count(chunk, "rows", values, row_group.num_rows)
                check_expansion(sums.bytes, size, limits)
        width = sum(_width(file.schema_arrow.field(name).type) for name in present)
        if width > limits.row_group_bytes:
            message = f"a row has {width} bytes, at most {limits.row_group_bytes} are taken"
            raise FileRejectedError(rule="parquet_limits", message=message)
        rows = min(sums.rows, 4 * limits.row_group_bytes // max(1, width))
        return cls(tuple(sorted(sums.repeating)), max(1, rows))


class _PageTotals:
    """Totals over the page headers of a file."""

    def __init__(self, limits: IngestLimits) -> None:
        self._limits = limits
        self.rows, self.bytes = limits.batch_rows, 0
        self.repeating = set[str]()

    def add(self, handle: int, size: int, chunk: Any) -> tuple[int, int]:
        """Add the pages of a column chunk.

        Returns:
            Their number of values, nulls included, and of rows; -1 if a page does not say it.
        """
        rows = 0
        start, values, dictionary, prefixed = chunk.data_page_offset, 0, 0, 0
        first = chunk.dictionary_page_offset or 0
        if first > 0 and (first < start or start == 0):  # a chunk without rows has no data page
            start = first
        if start < 0 or chunk.total_compressed_size < 0:
            raise FileRejectedError(
                rule="parquet_damaged", message="a column has an invalid position"
            )
        end = min(size, start + chunk.total_compressed_size)
        for page in pages(handle, start, end - start):
            if page.bytes > PAGE_BYTES_MAX:
                message = f"a page has {page.bytes} bytes, at most {PAGE_BYTES_MAX} are taken"
                raise FileRejectedError(rule="parquet_limits", message=message)
            self.bytes += page.bytes
            if page.kind == DICTIONARY_PAGE:
                dictionary = max(dictionary, page.bytes)
            else:
                values += page.values
                rows = -1 if rows < 0 or page.rows < 0 else rows + page.rows
            if page.encoding == DELTA_BYTE_ARRAY:
                prefixed = max(prefixed, page.bytes)
        if chunk.physical_type == "BYTE_ARRAY":
            self._bound(chunk, values, dictionary, prefixed)
        return values, rows

    def _bound(self, chunk: Any, values: int, dictionary: int, prefixed: int) -> None:
        if values * dictionary > REPEATED_BYTES_MAX:
            self.repeating.add(chunk.path_in_schema)
        if values * prefixed > 4 * self._limits.row_group_bytes:
            if "." in chunk.path_in_schema:
                message = "a nested column of texts with common beginnings; write another encoding"
                raise FileRejectedError(rule="parquet_limits", message=message)
            self.rows = min(self.rows, max(1, self._limits.row_group_bytes // prefixed))


def _require_count(chunk: Any, what: str, held: int, said: int) -> None:
    """Compare what the pages of a chunk hold with what the footer says; -1 is not compared."""
    if held not in (said, -1):
        name = excerpt(chunk.path_in_schema)
        message = f"the pages of column {name} hold {held} {what}, the footer says {said}"
        raise FileRejectedError(rule="parquet_damaged", message=message)


def _top(metadata: Any, at: int) -> str:
    path: str = metadata.schema.column(at).path
    return path if path == metadata.schema.column(at).name else path.partition(".")[0]


def _width(type_: pa.DataType) -> int:
    """Return the bytes that a row of a type takes whatever its values are."""
    if pt.is_fixed_size_binary(type_):
        return int(type_.byte_width)
    if pt.is_fixed_size_list(type_):
        return int(type_.list_size) * _width(type_.value_type)
    if pt.is_struct(type_):
        return sum(_width(type_.field(at).type) for at in range(type_.num_fields))
    return 16


def decoded_bytes(array: pa.Array) -> int:
    """Return the size of an array in bytes once its dictionaries are decoded."""
    type_ = array.type
    if pt.is_dictionary(type_):
        if not (pt.is_binary(type_.value_type) or pt.is_string(type_.value_type)):
            return len(array) * 16 + int(array.dictionary.nbytes)
        lengths = pc.binary_length(array.dictionary)
        return int(pc.sum(pc.take(lengths, array.indices)).as_py() or 0) + 4 * len(array)
    if pt.is_map(type_):
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        parts = (array.keys, array.items)
        return sum(decoded_bytes(part.slice(first, last - first)) for part in parts)
    if pt.is_list(type_) or pt.is_large_list(type_) or pt.is_fixed_size_list(type_):
        return 4 * len(array) + decoded_bytes(array.flatten())
    if pt.is_struct(type_):
        return sum(decoded_bytes(array.field(at)) for at in range(type_.num_fields))
    return int(array.nbytes)
