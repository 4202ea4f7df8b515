"""Writer of immutable Parquet files: written once, synced, never changed again.

A file is created at its first row, so a task that emits nothing leaves no file.
A closed file is durable only after `sync_files`, which a task calls once for all its files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from cbp.engine.storage.checked_parquet import CHECKED, seal, sealed
from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.files import sync_path
from cbp.errors import DiskFullError
from cbp.model.flow.signed_changes import CHANGE_TYPE, SIGN

ROWS_PER_GROUP = 131_072
BYTES_PER_GROUP = 64 << 20

SMALL_ROWS, SMALL_BYTES = 1_024, 64 << 10
"""Up to this size a file is compressed with Snappy: a file of 8 columns then takes 0.17 ms. With
Zstandard, which makes a context per column, it takes 0.41 ms. Compaction merges such files."""

_WHOLE_BYTES = 1 << 20
"""Up to this size (in Arrow) a file is made in memory, with its seal: a seal that is added to a
closed file has to read it again, which takes 0.1 ms."""

_FEW_TEXTS, _FEW_VALUES = (CHANGE_TYPE,), (CHANGE_TYPE, SIGN, "_epoch")
"""Columns with a few different values, which a dictionary makes small and fast to write; in small
files, only texts have one. Other columns mostly have as many values as rows, so a dictionary would
save nothing."""

_SAMPLE_ROWS = 8_192
_GAIN_MIN = 0.85
"""A column of numbers is not compressed if its compressed sample is larger than this share, as for
hashes and most doubles: compressing takes as long as writing, and would save a few percent."""

_SYNC_THREADS = 16


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A closed file: its path as given, its rows, its bytes, and the number of buckets."""

    path: str
    rows: int
    bytes: int
    buckets: int = 0


def sync_files(paths: Sequence[str], *, faults: Faults) -> None:
    """Make closed files and their names durable, all at the same time.

    A journal commits all waiting files together, so this costs about one flush. Content and
    names are synced in any order, since no record names a file before both are durable.
    """
    if not paths:
        return
    faults("data_sync.before")
    folders = {folder for path in paths for folder in _folders(path)}
    list(_threads().map(_sync, [*paths, *folders]))
    faults("data_sync.after")


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    """Return this process's threads for waiting on the disk; a worker keeps them."""
    return ThreadPoolExecutor(max_workers=_SYNC_THREADS, thread_name_prefix="cbp-sync")


def _folders(path: str) -> Iterator[str]:
    """Yield the folders whose names must be durable for a file, up to its table.

    The table's own folder became durable with the table. The folders below it, such as `_runs`
    and `_bucket=3`, are made by the first task that writes there, so their names must be synced.
    """
    folder = os.path.dirname(path)
    yield folder
    while os.path.basename(folder).startswith("_"):
        folder = os.path.dirname(folder)
        yield folder


def _sync(path: str) -> None:
    try:
        sync_path(path)
    except OSError as exc:
        raise _coded(exc, path) from exc


class RowGroups(Protocol):
    """Decides how a file's rows are put into row groups; one object per file."""

    def is_full(self, rows: int, size: int) -> bool:
        """Return whether this many pending rows and bytes must be written now."""
        ...

    def cut(self, table: pa.Table) -> Iterator[pa.Table]:
        """Yield the row groups of the pending rows; they may be sorted."""
        ...

    def finish(self, writer: pq.ParquetWriter, rows: int) -> int:
        """Write metadata after all rows of the file; return the number of buckets of the rows."""
        ...


@dataclass(frozen=True, slots=True)
class InOrder:
    """Keeps rows in the order of writing; a row group ends at this many rows or bytes in Arrow."""

    rows_max: int = ROWS_PER_GROUP
    bytes_max: int = BYTES_PER_GROUP

    def is_full(self, rows: int, size: int) -> bool:
        """See `RowGroups.is_full`."""
        return rows >= self.rows_max or size >= self.bytes_max

    def cut(self, table: pa.Table) -> Iterator[pa.Table]:
        """See `RowGroups.cut`."""
        yield table

    def finish(self, writer: pq.ParquetWriter, rows: int) -> int:
        """See `RowGroups.finish`; rows in order have no buckets."""
        return 0


class ParquetSink:
    """Writes Arrow tables to one file, in row groups of bounded size; by default in their order."""

    def __init__(
        self, path: str, schema: pa.Schema, *, faults: Faults, groups: RowGroups | None = None
    ) -> None:
        self.schema = schema
        self._path, self._fault = path, faults
        self._groups = groups or InOrder()
        self._pending: list[pa.Table] = []
        self._pending_rows = self._pending_bytes = 0
        self._rows = 0
        self._file: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None

    @property
    def rows(self) -> int:
        """The number of rows written or pending so far."""
        return self._rows

    def write(self, table: pa.Table) -> None:
        """Add rows; they are written in row groups."""
        self._pending.append(table)
        self._pending_rows += table.num_rows
        self._pending_bytes += table.nbytes
        self._rows += table.num_rows
        if self._groups.is_full(self._pending_rows, self._pending_bytes):
            self._flush()

    def close(self) -> WrittenFile | None:
        """Write the remaining rows; `None` if there were none. Durable only after `sync_files`."""
        if not self._rows:
            return None
        self._fault("data_file.before")
        try:
            self._flush(last=True)
            assert self._writer is not None
            assert self._file is not None
            buckets = self._groups.finish(self._writer, self._rows)
            self._writer.close()
            size = self._seal(self._file)
        except OSError as exc:
            raise _coded(exc, self._path) from exc
        self._fault("data_file.after")
        return WrittenFile(self._path, self._rows, size, buckets)

    def _seal(self, file: pa.NativeFile) -> int:
        """Close the file and add its seal; return its size."""
        if not isinstance(file, pa.BufferOutputStream):
            file.close()
            return seal(self._path)
        data = sealed(file.getvalue().to_pybytes(), self._path)
        with open(self._path, "wb") as whole:  # unbuffered, a full disk would shorten it silently
            return whole.write(data)

    def _flush(self, *, last: bool = False) -> None:
        if not self._pending:
            return
        try:
            if self._writer is None:
                os.makedirs(os.path.dirname(self._path), exist_ok=True)
                small = last and self._rows <= SMALL_ROWS and self._pending_bytes <= SMALL_BYTES
                few = _FEW_TEXTS if small else _FEW_VALUES
                whole = last and self._pending_bytes <= _WHOLE_BYTES
                self._file = pa.BufferOutputStream() if whole else pa.OSFile(self._path, "wb")
                self._writer = pq.ParquetWriter(
                    self._file,
                    self.schema,
                    compression="snappy" if small else _codecs(self._pending, self.schema),
                    use_dictionary=[name for name in few if name in self.schema.names],
                    **CHECKED,
                )
            for group in self._groups.cut(pa.concat_tables(self._pending)):
                self._writer.write_table(group)
        except OSError as exc:
            raise _coded(exc, self._path) from exc
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0


def _codecs(tables: Sequence[pa.Table], schema: pa.Schema) -> str | dict[str, str]:
    first = max(tables, key=len)
    if len(first) < _SAMPLE_ROWS or any(map(pa.types.is_nested, schema.types)):
        return "zstd"
    return {name: "none" if is_random(first.column(name)) else "zstd" for name in schema.names}


def is_random(column: pa.ChunkedArray) -> bool:
    """Return whether compressing many numbers of 64 bits gains nearly nothing, by a sample."""
    is_wide = pa.types.is_int64(column.type) or pa.types.is_float64(column.type)
    if not is_wide or column.null_count or len(column) < _SAMPLE_ROWS:
        return False
    start = (len(column) - _SAMPLE_ROWS) // 2
    data = memoryview(column.slice(start, _SAMPLE_ROWS).combine_chunks().to_numpy())
    packed = pa.Codec("zstd").compress(data.cast("B"))
    return bool(packed.size > _GAIN_MIN * data.nbytes)


def _coded(exc: OSError, path: str) -> Exception:
    return DiskFullError(path) if DiskFullError.is_disk_full(exc) else exc
