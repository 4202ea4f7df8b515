"""Immutable Parquet files: written once, synced, described; never touched again.

A file is opened at its first row, so that a task which emits nothing leaves nothing.
A closed file is durable only after `sync_files`, which a task calls once for all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from cbp.engine.faults import Faults
from cbp.errors import DiskFullError

__all__ = ["ROWS_PER_GROUP", "ParquetSink", "WrittenFile", "sync_files"]

ROWS_PER_GROUP = 131_072
BYTES_PER_GROUP = 64 << 20
"""In Arrow. Rows or bytes: what comes first makes a group, so that wide rows are not held."""

SMALL_ROWS, SMALL_BYTES = 1_024, 64 << 10
"""Up to here a whole file (of 8 columns) is written in 0.17 ms with Snappy, in 0.41 with Zstandard,
which makes a context per column; it is merged away after a few runs, and small runs write many."""

_SYNC_THREADS = 16


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A closed file: its path as given, rows and bytes, and how many buckets its rows lie by."""

    path: str
    rows: int
    bytes: int
    buckets: int = 0


def sync_files(paths: Sequence[str], *, faults: Faults) -> None:
    """Make closed files and their names durable, many at the same time.

    A journal commits what waits for it together, so this costs about one flush: content and names
    wait side by side, since nobody is told of a file before both are there.
    """
    if not paths:
        return
    faults("data_sync.before")
    folders = {folder for path in paths for folder in _folders(path)}
    list(_threads().map(_sync, [*paths, *folders]))
    faults("data_sync.after")


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    """Return this process's threads that only wait for the disk; a worker keeps them."""
    return ThreadPoolExecutor(max_workers=_SYNC_THREADS, thread_name_prefix="cbp-sync")


def _folders(path: str) -> Iterator[str]:
    """Yield the folders that hold the names on the way to a file, up to its table.

    The table's own folder was made durable with the table. Those below it, `_runs` and
    `_bucket=3`, are made by the first task that writes there, and are names in a folder too.
    """
    folder = os.path.dirname(path)
    yield folder
    while os.path.basename(folder).startswith("_"):
        folder = os.path.dirname(folder)
        yield folder


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as exc:
        raise _coded(exc, path) from exc
    finally:
        os.close(descriptor)


class ParquetSink:
    """Collects Arrow tables and writes them to one file in row groups of bounded size."""

    def __init__(self, path: str, schema: pa.Schema, *, faults: Faults) -> None:
        self.schema = schema
        self._path, self._fault = path, faults
        self._pending: list[pa.Table] = []
        self._pending_rows = self._pending_bytes = 0
        self._rows = 0
        self._file: pa.OSFile | None = None
        self._writer: pq.ParquetWriter | None = None

    @property
    def rows(self) -> int:
        """Rows taken so far."""
        return self._rows

    def write(self, table: pa.Table) -> None:
        """Take rows; they reach the disk in groups."""
        self._pending.append(table)
        self._pending_rows += table.num_rows
        self._pending_bytes += table.nbytes
        self._rows += table.num_rows
        if self._full():
            self._flush()

    def close(self) -> WrittenFile | None:
        """Write what is left; `None` when there were no rows. `sync_files` makes it durable."""
        if not self._rows:
            return None
        self._fault("data_file.before")
        try:
            self._flush()
            assert self._writer is not None
            assert self._file is not None
            buckets = self._finish(self._writer)
            self._writer.close()
            self._file.close()
            size = os.stat(self._path).st_size
        except OSError as exc:
            raise _coded(exc, self._path) from exc
        self._fault("data_file.after")
        return WrittenFile(self._path, self._rows, size, buckets)

    def _flush(self) -> None:
        if not self._pending:
            return
        try:
            if self._writer is None:
                os.makedirs(os.path.dirname(self._path), exist_ok=True)
                self._file = pa.OSFile(self._path, "wb")
                # All that will come: else a row group would be full before it is written.
                small = self._rows <= SMALL_ROWS and self._pending_bytes <= SMALL_BYTES
                self._writer = pq.ParquetWriter(
                    self._file,
                    self.schema,
                    compression="snappy" if small else "zstd",
                    use_dictionary=False,
                )
            for group in self._groups(pa.concat_tables(self._pending)):
                self._writer.write_table(group)
        except OSError as exc:
            raise _coded(exc, self._path) from exc
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0

    def _full(self) -> bool:
        """Tell whether enough is pending to be written."""
        return self._pending_rows >= ROWS_PER_GROUP or self._pending_bytes >= BYTES_PER_GROUP

    def _groups(self, table: pa.Table) -> Iterator[pa.Table]:
        """Yield the row groups that are made of what was pending."""
        yield table

    def _finish(self, writer: pq.ParquetWriter) -> int:
        """Say what belongs behind the rows; return how many buckets they lie by."""
        return 0


def _coded(exc: OSError, path: str) -> Exception:
    """Tell a full disk from any other failure."""
    return DiskFullError(path) if DiskFullError.is_told_by(exc) else exc
