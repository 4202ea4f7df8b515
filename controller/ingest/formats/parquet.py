"""Parquet reader: columns by name, with the types of `ArrowColumns`, in bounded memory.

Rejected: text that is not UTF-8; a file with a wrong footer, wrong pages, a page whose bytes do not
match its checksum, or a wrong number of values or rows; an encrypted file.

The decoded size of a file is bounded from its page headers (`Bounds`), and counted while it is
decoded. A page holds at most as many bytes as its header says, unless a value refers to a
dictionary or to the value before it: 1,200 rows with the same text of one megabyte take 297 bytes.
A column that may become large in this way is read as a dictionary, and decoded in parts of known
size.

INT96 holds a day and the nanoseconds of that day. Arrow makes it one number of 64 bits, which wraps
around: in nanoseconds outside the years 1677 to 2262, in microseconds outside some 290,000 years.
In microseconds it also drops the nanoseconds. So these columns are read in two more units
(`Int96Columns`). A time in microseconds is right if it is equal in nanoseconds, with the same
wrap-around, and equal in milliseconds, which cannot wrap around. pyarrow writes a time before 1970
with negative nanoseconds of the day, and reads them as an unsigned number: in microseconds, the
time is too late by 2**64 nanoseconds. This is corrected where it is certain; a nested time is
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from cbp.engine.columnar.value_limits import inner_arrays
from controller.ingest.formats.bad_lines import Reading
from controller.ingest.formats.columns import ArrowColumns
from controller.ingest.formats.file_bytes import ClaimedContent, check_expansion
from controller.ingest.formats.parquet_pages import (
    DELTA_BYTE_ARRAY,
    DICTIONARY_PAGE,
    ENCRYPTED,
    ENCRYPTED_MAGIC,
    FOOTER_BYTES_MAX,
    PLAIN_MAGIC,
    check_footer,
    encrypted_columns,
    header_bytes_uncounted,
    pages,
)
from controller.ingest.limits import IngestLimits
from controller.ingest.rejection import FileRejectedError
from controller.value_conversion import excerpt

Unit = Literal["us", "ns", "ms"]

_MICROS_AROUND, _NANOS_LEFT = divmod(1 << 64, 1_000)
_DAY_MILLIS = 86_400_000
_MILLIS_END = ((1 << 31) - 2_440_588) * _DAY_MILLIS
"""Milliseconds after the last day of INT96, which counts from 4713 BC in 32 bits."""
_NANOS_END = ((1 << 63) - 1) // 1_000
"""Microseconds up to which a time can have been written with nanoseconds: until 2262."""


class Int96Columns:
    """Checks the INT96 columns of a file, batch by batch, together with its reader."""

    def __init__(
        self,
        file: pq.ParquetFile,
        present: Sequence[str],
        open_: Callable[[Unit], pq.ParquetFile],
        batch_rows: int,
    ) -> None:
        schema = file.schema
        self._by_pyarrow = str(file.metadata.created_by).startswith("parquet-cpp")
        leaves = [schema.column(at) for at in range(len(schema))]
        paths = [leaf.path for leaf in leaves if leaf.physical_type == "INT96"]
        inside = {*paths, *(path.partition(".")[0] for path in paths)}
        self._names = [name for name in present if name in inside]
        self._others = [
            _Rows(open_(unit), self._names, batch_rows) for unit in ("ns", "ms") if self._names
        ]

    def checked(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[str, dict[int, str]]]:
        """Return the next batch, and by column the rows whose times Arrow converted wrongly.

        Each row has the time in the file, as text; `"a time"` for a nested one.
        """
        if not self._names:
            return batch, {}
        others = [rows.take(batch.num_rows) for rows in self._others]
        wrong = dict[str, dict[int, str]]()
        for name in self._names:
            units = [batch.column(name), *(other.column(name) for other in others)]
            if _are_right(units):
                continue
            right = [_are_right([unit.slice(at, 1) for unit in units]) for at in range(len(batch))]
            if self._by_pyarrow and pa.types.is_timestamp(units[0].type):
                column, taken_back = _taken_back(units[0], units[1])
                batch = batch.set_column(batch.schema.get_field_index(name), name, column)
                right = [one or bool(taken_back[at]) for at, one in enumerate(right)]
            if not all(right):
                wrong[name] = {at: _shown(units, at) for at, one in enumerate(right) if not one}
        return batch, wrong


def _shown(units: Sequence[pa.Array], at: int) -> str:
    """Return the time that the file has: in nanoseconds if these have not wrapped around."""
    if not pa.types.is_timestamp(units[0].type):
        return "a time"
    nanos, millis = units[1][at].value, units[2][at].value
    if millis >= _MILLIS_END:  # Arrow reads the day as an unsigned number
        millis -= (1 << 32) * _DAY_MILLIS
    fits = nanos // 1_000_000 == millis
    return str(np.datetime64(nanos, "ns") if fits else np.datetime64(millis, "ms"))


def _taken_back(times: pa.Array, nanoseconds: pa.Array) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Return times with those corrected that are 2**64 nanoseconds late, and which these are."""
    micros, nanos = _numbers(times), _numbers(nanoseconds)
    with np.errstate(over="ignore"):
        are_late = (nanos - micros * 1000 == _NANOS_LEFT) & (micros > _NANOS_END)
    right = pa.array(micros - are_late * _MICROS_AROUND, mask=~np.asarray(times.is_valid()))
    return right.view(times.type), are_late


def _are_right(units: Sequence[pa.Array]) -> bool:
    """Compare the same times in microseconds, nanoseconds and milliseconds, however deep."""
    if pa.types.is_timestamp(units[0].type):
        if units[1].type == units[2].type:  # no INT96, but another time beside it
            return True
        micros, nanos, millis = map(_numbers, units)
        with np.errstate(over="ignore"):
            return bool(np.all(micros * 1000 == nanos) and np.all(micros // 1000 == millis))
    return all(map(_are_right, zip(*map(inner_arrays, units), strict=True)))


def _numbers(times: pa.Array) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = times.cast(pa.int64()).fill_null(0).to_numpy()
    return numbers


class _Rows:
    def __init__(self, file: pq.ParquetFile, names: list[str], batch_rows: int) -> None:
        self._batches: Iterator[pa.RecordBatch] = file.iter_batches(
            batch_size=batch_rows, columns=names, use_threads=False
        )
        self._left: pa.RecordBatch | None = None

    def take(self, count: int) -> pa.RecordBatch:
        parts = list[pa.RecordBatch]()
        while count:
            part = self._left if self._left is not None else next(self._batches)
            taken = part.slice(0, count)
            parts.append(taken)
            count -= taken.num_rows
            rest = part.slice(taken.num_rows)
            self._left = rest if rest.num_rows else None
        return pa.concat_batches(parts)


PAGE_BYTES_MAX = 256 << 20
CHUNKS_MAX = 500_000
REPEATED_BYTES_MAX = 16 << 20
"""Largest size to which repeated values may decode before a column is read as a dictionary."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The sizes of the parts in which a file is read."""

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

        Raises `parquet_limits`, `parquet_damaged`, `parquet_encrypted`, `decompression_ratio` or
        `decompressed_too_large`.
        """
        metadata = file.metadata
        columns = [at for at in range(metadata.num_columns) if _top(metadata, at) in present]
        if encrypted := encrypted_columns(handle, size).intersection(columns):
            name = metadata.schema.column(min(encrypted)).path
            raise FileRejectedError("parquet_encrypted", ENCRYPTED, column=name[:100])
        if metadata.num_row_groups * len(columns) > CHUNKS_MAX:
            message = f"the file has more than {CHUNKS_MAX} column chunks; write larger row groups"
            raise FileRejectedError("parquet_limits", message)
        sums = _PageTotals(limits, header_bytes_uncounted(metadata.created_by))
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
            message = f"a row has {width} bytes, but at most {limits.row_group_bytes} are allowed"
            raise FileRejectedError("parquet_limits", message)
        rows = min(sums.rows, 4 * limits.row_group_bytes // max(1, width))
        return cls(tuple(sorted(sums.repeating)), max(1, rows))


class _PageTotals:
    def __init__(self, limits: IngestLimits, uncounted: int) -> None:
        self._limits, self._uncounted = limits, uncounted
        self.rows, self.bytes = limits.batch_rows, 0
        self.repeating = set[str]()

    def add(self, handle: int, size: int, chunk: Any) -> tuple[int, int]:
        """Add a column chunk; return its numbers of values, and of rows (-1: unknown)."""
        rows = 0
        start, values, dictionary, prefixed = chunk.data_page_offset, 0, 0, 0
        first = chunk.dictionary_page_offset or 0
        if first > 0 and (first < start or start == 0):  # a chunk without rows has no data page
            start = first
        if start < 0 or chunk.total_compressed_size < 0:
            raise FileRejectedError("parquet_damaged", "a column has an invalid position")
        end = min(size, start + chunk.total_compressed_size + self._uncounted)
        for page in pages(handle, start, end - start):
            if page.bytes > PAGE_BYTES_MAX:
                message = f"a page has {page.bytes} bytes, but at most {PAGE_BYTES_MAX} are allowed"
                raise FileRejectedError("parquet_limits", message)
            self.bytes += page.bytes
            if page.kind == DICTIONARY_PAGE:
                dictionary = max(dictionary, page.bytes)
            else:
                values += page.values
                rows = -1 if rows < 0 or page.rows < 0 else rows + page.rows
            if page.encoding == DELTA_BYTE_ARRAY:
                prefixed = max(prefixed, page.bytes)
            if self._uncounted and values >= chunk.num_values:
                break  # where Arrow stops; the rest belongs to another column
        if chunk.physical_type == "BYTE_ARRAY":
            self._bound(chunk, values, dictionary, prefixed)
        return values, rows

    def _bound(self, chunk: Any, values: int, dictionary: int, prefixed: int) -> None:
        if values * dictionary > REPEATED_BYTES_MAX:
            self.repeating.add(chunk.path_in_schema)
        if values * prefixed > 4 * self._limits.row_group_bytes:
            if "." in chunk.path_in_schema:
                message = (
                    "a nested string column with the encoding DELTA_BYTE_ARRAY could need too much "
                    "memory; write smaller pages, or use another encoding"
                )
                raise FileRejectedError("parquet_limits", message)
            self.rows = min(self.rows, max(1, self._limits.row_group_bytes // prefixed))


def _require_count(chunk: Any, what: str, held: int, said: int) -> None:
    """Compare the counts of a chunk's pages with those of the footer; -1 (unknown) is skipped."""
    if held not in (said, -1):
        name = excerpt(chunk.path_in_schema)
        message = f"the pages of column {name} hold {held} {what}, but the footer says {said}"
        raise FileRejectedError("parquet_damaged", message)


def _top(metadata: Any, at: int) -> str:
    path: str = metadata.schema.column(at).path
    return path if path == metadata.schema.column(at).name else path.partition(".")[0]


def _width(type_: pa.DataType) -> int:
    """Return the bytes that a value of a type is counted with: its fixed size, otherwise 16."""
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


Keep = Callable[[pa.RecordBatch, int], pa.RecordBatch]
"""Returns the wanted rows of a batch; the number is the position of its first row in the file."""

_BUFFER_BYTES = 1 << 20
_WRONG = "\0wrong"
"""Suffix of a column with the mistakes of another column; no declared column has it."""
_INT96 = (
    "expected TIMESTAMP, got {} as INT96, which is outside the years 1 to 9999 or has "
    "nanoseconds; write microseconds, in INT64"
)


def keep_all(batch: pa.RecordBatch, _first: int) -> pa.RecordBatch:
    """Return every row."""
    return batch


def read_parquet(
    content: ClaimedContent,
    reading: Reading,
    *,
    keep: Keep = keep_all,
    line: int = 0,
    aside: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Hash the file, then yield its records in order, up to the first wrong one.

    `line` is the number of rows in earlier files; it is added to the numbers of wrong rows. The
    columns `aside` are always left out. Wrong rows go to `bad`: `value_range`, `value_missing`.
    Raises `format_mismatch`, a `parquet_...` rule, `line_too_long`, `decompression_ratio`,
    `decompressed_too_large`, or as `ArrowColumns.present`.
    """
    if content.peek(4) not in (PLAIN_MAGIC, ENCRYPTED_MAGIC):
        raise FileRejectedError("format_mismatch", "the content is not Parquet")
    content.finish()
    try:
        yield from _Reader(content, reading, keep, line, aside).batches()
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, OverflowError, UnicodeDecodeError) as exc:
        if isinstance(exc, OSError) and exc.errno:
            raise
        raise damaged(exc) from exc


def damaged(error: Exception) -> FileRejectedError:
    """Return the rejection of a file that Arrow cannot read."""
    said = str(error)
    message = f"the Parquet file is damaged or truncated, or violates the format: {excerpt(said)}"
    if "checksum" in said:
        message = "a page of the Parquet file is damaged: its bytes do not match its checksum"
    return FileRejectedError("parquet_damaged", message, cause=excerpt(said))


class _Reader:
    def __init__(
        self,
        content: ClaimedContent,
        reading: Reading,
        keep: Keep,
        line: int,
        aside: Collection[str],
    ) -> None:
        self._content, self._limits, self._bad = content, reading.limits, reading.bad
        self._keep, self._line = keep, line
        file = content.seekable()
        check_footer(file.fileno(), content.size)
        whole = open_parquet(file)
        self._columns = ArrowColumns(reading)
        columns = [field for field in whole.schema_arrow if field.name not in aside]
        self._present = self._columns.present(pa.schema(columns))
        self._metadata = whole.metadata
        self._bounds = Bounds.of(file.fileno(), content.size, whole, self._present, self._limits)
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
            message = (
                f"the footer says {self._metadata.num_rows} rows, but the pages hold {self._rows}"
            )
            raise FileRejectedError("parquet_damaged", message)

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
    """Return a batch with one more column for each with wrong rows: the mistake, or null."""
    for name, rows in wrong.items():
        marks = pa.array([rows.get(at) for at in range(batch.num_rows)], pa.string())
        batch = batch.append_column(f"{name}{_WRONG}", marks)
    return batch


def open_parquet(
    file: BinaryIO, as_dictionaries: Sequence[str] = (), *, unit: Unit = "us"
) -> pq.ParquetFile:
    """Open a file that is not trusted; its checksums are verified while it is read."""
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
        message = f"the row decodes to {size} bytes, but at most {bytes_max} are allowed"
        raise FileRejectedError("line_too_long", message, line=before + 1)
    half = batch.num_rows // 2
    yield from _small(batch.slice(0, half), bytes_max, before)
    yield from _small(batch.slice(half), bytes_max, before + half)
