"""Parquet files with checksums, which are checked before a file is used.

    pages | seal | footer | length of the footer | "PAR1"

Parquet has a CRC-32 for each page. It covers neither the page headers nor the footer. A damaged
page header can make a reader skip a page silently. A damaged footer can have wrong statistics, by
which a look-up skips records. We therefore write a *seal* between pages and footer, a place that
every reader skips. It has a checksum of each block of 64 KiB of pages, one of the footer, one of
the name for which the file was written (files of equal size can be swapped) and one of the seal
itself. CRCs are written too, for other readers.

`CheckedFile` checks the footer when a file is opened, and blocks of pages just before they are
read; a small file is checked completely when it is opened. Files of earlier versions and of other
writers have no seal and perhaps no CRC: only their CRCs are checked, if there are any. Every error
names the file.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from cbp.engine.storage.files import open_regular
from cbp.engine.storage.spill_files import map_is_refused
from cbp.errors import (
    FileDamagedError,
    FileLostError,
    IncrementDamagedError,
    OperatingError,
    own_name,
)

CHECKED: dict[str, Any] = {"write_page_checksum": True}
"""Options of a Parquet writer that make its pages checkable."""

BLOCK = 64 << 10
_SMALL_BYTES = 1 << 20
"""Up to this size all pages are checked when the file is opened; that takes 0.1 ms."""

_FIXED_PART = struct.Struct("<QQQQ")
_TAIL = struct.Struct("<QQQQQ8s")
_MAGIC, _NAMELESS = b"CBPSEAL2", b"CBPSEAL1"
"""The magic of current seals, and of an earlier version's seals, which have no name."""
_END = struct.Struct("<I4s")
_PARQUET = b"PAR1"
_READ_BYTES = 1 << 20
_ENDS_BYTES = 16 << 10
_DECODED_ROWS = 16_384

Sums = npt.NDArray[np.uint64]


def seal(path: str) -> int:
    """Put the seal into a file that was just closed; return the file's new size."""
    with open(path, "r+b") as file:
        size = file.seek(0, 2)
        file.seek(size - _END.size)
        length, _ = _END.unpack(file.read(_END.size))
        pages = size - _END.size - length
        file.seek(0)
        parts = (file.read(min(_READ_BYTES, pages - at)) for at in range(0, pages, _READ_BYTES))
        sums = b"".join(map(_sums_of, parts))
        footer = file.read()
        file.seek(pages)
        file.write(_seal_of(pages, sums, footer, path) + footer)
        return file.tell()


def sealed(data: bytes, path: str) -> bytes:
    """Return a file's bytes with the seal for its future path; pure."""
    length, _ = _END.unpack(data[-_END.size :])
    pages = len(data) - _END.size - length
    head, footer = data[:pages], data[pages:]
    return b"".join((head, _seal_of(pages, _sums_of(head), footer, path), footer))


def parquet_file(table: pa.Table, path: str) -> bytes:
    """Return the bytes of a table as a file with checksums, for its future path; pure."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **CHECKED)
    return sealed(sink.getvalue().to_pybytes(), path)


def _seal_of(pages: int, sums: bytes, footer: bytes, path: str) -> bytes:
    fixed_part = _FIXED_PART.pack(_name_sum(path), pages, BLOCK, xxhash.xxh3_64_intdigest(footer))
    own = xxhash.xxh3_64_digest(sums + fixed_part)
    return sums + fixed_part + own + _MAGIC


def _name_sum(path: str) -> int:
    name = own_name(path)
    return xxhash.xxh3_64_intdigest(name.encode()) if name else 0


def _sums_of(pages: bytes) -> bytes:
    if len(pages) <= BLOCK:
        return xxhash.xxh3_64_intdigest(pages).to_bytes(8, "little") if pages else b""
    view = memoryview(pages)
    sums = (xxhash.xxh3_64_intdigest(view[at : at + BLOCK]) for at in range(0, len(view), BLOCK))
    return np.fromiter(sums, "<u8").tobytes()


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn any error while a file is read into one that names the file.

    `FileLostError` if it is missing, `FileDamagedError` if it cannot be parsed, `OperatingError` if
    the system refuses to read it.
    """
    try:
        yield
    except FileNotFoundError as exc:
        raise FileLostError(path) from exc
    except OSError as exc:
        if map_is_refused(exc):
            raise
        if exc.errno is None or exc.errno == errno.EINVAL:
            raise FileDamagedError(path, _said(exc)) from exc
        message = f"{path}: {exc.strerror or exc}"
        raise OperatingError(message, path=path, errno=exc.errno) from exc
    except pa.ArrowMemoryError:
        raise
    except pa.ArrowException as exc:
        raise FileDamagedError(path, _said(exc)) from exc


@contextmanager
def reading_increment(path: str, expected: int) -> Iterator[None]:
    """Turn any error while an increment's file is read into one that names it."""
    try:
        with reading(path):
            yield
    except IncrementDamagedError:
        raise
    except FileDamagedError as exc:
        raise IncrementDamagedError(path, expected=expected, found=exc.details["why"]) from exc


class CheckedFile:
    """A Parquet file that is checked before it is read; methods raise `FileDamagedError`."""

    def __init__(self, path: str, source: pa.NativeFile, dictionaries: Sequence[str] = ()) -> None:
        self.path, self._source = path, source
        with reading(path):
            self._sums, self._pages = _read_seal(source, path)
            self.is_sealed = self._sums is not None
            count = 0 if self._sums is None else len(self._sums)
            self._passed = np.zeros(count, np.bool_)
            if self._pages <= _SMALL_BYTES:
                self._check(0, self._pages)
            # No read-ahead: another thread would do it, and this one would only wait for it.
            self._file = pq.ParquetFile(
                source,
                pre_buffer=False,
                page_checksum_verification=not self.is_sealed,
                read_dictionary=list(dictionaries),
            )
        self.metadata: pq.FileMetaData = self._file.metadata

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._file.close()

    @property
    def num_row_groups(self) -> int:
        """The number of row groups."""
        return int(self.metadata.num_row_groups)

    @property
    def schema_arrow(self) -> pa.Schema:
        """Names and types of the columns."""
        return self._file.schema_arrow

    def check(self) -> None:
        """Check all pages."""
        with reading(self.path):
            self._check(0, self._pages)

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return all rows."""
        return self.read_row_groups(range(self.num_row_groups), columns)

    def read_row_group(self, group: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of one row group."""
        return self.read_row_groups([group], columns)

    def read_row_groups(
        self, groups: Iterable[int], columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Return the rows of some row groups."""
        wanted, names = list(groups), None if columns is None else list(columns)
        with reading(self.path):
            for group in wanted:
                self._check_group(group, names)
            return self._file.read_row_groups(wanted, columns=names, use_threads=False)

    def iter_batches(
        self, rows: int, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order, in batches of at most `rows` within one row group."""
        names = None if columns is None else list(columns)
        with reading(self.path):
            for group in range(self.num_row_groups):
                self._check_group(group, names)
                yield from self._file.iter_batches(
                    rows, row_groups=[group], columns=names, use_threads=False
                )

    def _check_group(self, group: int, columns: Sequence[str] | None) -> None:
        if self._passed.all():
            return
        nested = tuple(f"{column}." for column in columns or ())
        row_group_metadata = self.metadata.row_group(group)
        for at in range(row_group_metadata.num_columns):
            chunk = row_group_metadata.column(at)
            column = chunk.path_in_schema
            if columns is None or column in columns or column.startswith(nested):
                starts = (chunk.dictionary_page_offset, chunk.data_page_offset)
                start = min(start for start in starts if start)
                self._check(start, start + chunk.total_compressed_size)

    def _check(self, start: int, stop: int) -> None:
        """Check the blocks of a byte range that were not checked before."""
        if self._sums is None:
            return
        first, last = start // BLOCK, min(-(-stop // BLOCK), len(self._sums))
        step = _READ_BYTES // BLOCK
        for at in range(first, last, step):
            end = min(at + step, last)
            if not self._passed[at:end].all():
                high = min(end * BLOCK, self._pages)
                sums = _sums_of(self._source.read_at(high - at * BLOCK, at * BLOCK))
                if sums != self._sums[at:end].tobytes():
                    raise FileDamagedError(self.path, "a checksum of its pages is wrong")
                self._passed[at:end] = True


def open_parquet(
    path: str,
    *,
    mapped: bool = False,
    data: bytes | None = None,
    dictionaries: Sequence[str] = (),
) -> CheckedFile:
    """Open a Parquet file; it is checked as it is read (`FileLostError`, `FileDamagedError`).

    Args:
        data: The file's bytes, if they were read already.
        dictionaries: Columns of texts that are returned as dictionaries.
    """
    with reading(path):
        return CheckedFile(path, _source(path, mapped=mapped, data=data), dictionaries)


def check_parquet(path: str) -> int:
    """Read all of a file, check all that can be checked, and return its number of rows."""
    with open_parquet(path) as file:
        file.check()
        if not file.is_sealed:
            # Only decoding shows whether a file without a seal can be read.
            for batch in file.iter_batches(_DECODED_ROWS):
                batch.validate(full=True)
        return int(file.metadata.num_rows)


def _source(path: str, *, mapped: bool, data: bytes | None) -> pa.NativeFile:
    if data is None:
        with open_regular(path, buffering=0) as file:
            # One read costs less than the seven reads that opening a file takes.
            if os.fstat(file.fileno()).st_size <= _SMALL_BYTES:
                data = file.read()
    if data is not None:
        return pa.BufferReader(data)
    return pa.memory_map(path) if mapped else pa.OSFile(path, "rb")


def _read_seal(source: pa.NativeFile, path: str) -> tuple[Sums | None, int]:
    """Check footer and seal; return the checksums, if any, and the size of the pages in bytes."""
    size = source.size()
    if size < _END.size + 4:
        raise FileDamagedError(path, f"it is too short for a Parquet file ({size} bytes)")
    end = source.read_at(min(size, _ENDS_BYTES), max(0, size - _ENDS_BYTES))
    length, magic = _END.unpack(end[-_END.size :])
    if magic != _PARQUET:
        raise FileDamagedError(path, "it does not end with PAR1, as a Parquet file does")
    footer = length + _END.size
    if size < footer + _TAIL.size + 4:
        return None, 0
    if len(end) < footer + _TAIL.size:
        end = source.read_at(footer + _TAIL.size, size - footer - _TAIL.size)
    tail = end[len(end) - footer - _TAIL.size : len(end) - footer]
    name, pages, block, sum_, own, magic = _TAIL.unpack(tail)
    if magic not in (_MAGIC, _NAMELESS):
        return None, 0
    named = magic == _MAGIC
    fixed_part = tail[: _FIXED_PART.size] if named else tail[8 : _FIXED_PART.size]
    count = -(-pages // BLOCK)
    if block != BLOCK or pages + 8 * count + len(fixed_part) + 16 + footer != size:
        raise FileDamagedError(path, "its size differs from the size when it was written")
    sums = source.read_at(8 * count, pages)
    if own != int.from_bytes(xxhash.xxh3_64_digest(sums + fixed_part), "little"):
        raise FileDamagedError(path, "its list of checksums is damaged")
    if named and name and name != (_name_sum(path) or name):
        raise FileDamagedError(path, "its content was written under another file name")
    if sum_ != xxhash.xxh3_64_intdigest(end[len(end) - footer :]):
        raise FileDamagedError(path, "the checksum of its footer is wrong")
    return np.frombuffer(sums, "<u8"), int(pages)


def _said(exc: BaseException) -> str:
    return str(exc).strip().partition("\n")[0][:300]
