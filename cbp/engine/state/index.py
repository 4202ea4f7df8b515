"""Local, memory-mapped copies of immutable data files, sorted by `_hash`.

Random keys make every Parquet reader read the whole file, whatever the hit rate; a
mapped copy answers `searchsorted` by touching a few pages. A copy is only a cache:

- It belongs to one file: its name holds table id, path and size, and data files
  never change. It is made under another name and renamed, never written in place,
  since a file that shrinks under a map kills the process.
- It is not synced. Instead its folder is named after the boot of this machine, so
  that pages lost with the power are never trusted.
- Whatever goes wrong with it (no space, truncated, `mmap` refused), the Parquet
  file is read instead: slower, never wrong.
- Where the address space of a process is bounded (`spark.executor.pyspark.memory`),
  maps that are not in use make room for those that are.
- Bounded: the least recently used copies are unlinked; maps of them stay valid.

Strings are widened to `large_string`: above 2 GB a `string` column would fall apart
into chunks, and reading one of them would lose rows. The row count is checked.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import threading
import uuid
from collections import OrderedDict
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from cbp.errors import InvariantError

__all__ = ["IndexCache", "IndexedFile", "index_cache"]

BYTES_MAX_DEFAULT = 20 << 30
MAPS_MAX = 4096
_SWEEP_EVERY = 64


class IndexedFile:
    """One data file, ready for look-ups.

    Attributes:
        hashes: `_hash` of every row, ascending.
        batch: All columns, all rows.
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        column = batch.column(batch.schema.get_field_index("_hash"))
        self.hashes: npt.NDArray[np.int64] = column.to_numpy(zero_copy_only=True)

    def positions(self, wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the rows whose hash is in `wanted` (ascending, unique), ascending."""
        if not len(wanted):
            return np.empty(0, np.int64)
        left = np.searchsorted(self.hashes, wanted, "left")
        right = np.searchsorted(self.hashes, wanted, "right")
        lengths = right - left
        hit = lengths > 0
        left, lengths = left[hit], lengths[hit]
        if not len(left):
            return np.empty(0, np.int64)
        offsets = np.cumsum(lengths) - lengths
        return np.repeat(left - offsets, lengths) + np.arange(lengths.sum())


@lru_cache(maxsize=8)
def index_cache(folder: str) -> IndexCache:
    """Return this process's cache of a folder; workers that are used again keep their maps."""
    return IndexCache(folder)


class IndexCache:
    """Copies below one folder of this machine; safe for many processes at a time."""

    def __init__(self, folder: str, *, bytes_max: int = BYTES_MAX_DEFAULT) -> None:
        self._folder = Path(folder) / _boot_id()
        self._bytes_max = bytes_max
        self._open: OrderedDict[str, IndexedFile] = OrderedDict()
        self._made = 0
        self._lock = threading.Lock()

    def open(self, table: str, table_id: str, path: str, *, size: int, rows: int) -> IndexedFile:
        """Return a data file for look-ups; makes its copy when there is none.

        Args:
            table: Folder of the table; with `path` it gives the data file.
            rows: Physical rows that the log promises.

        Raises:
            InvariantError: If the data file has another number of rows.
        """
        name = f"{table_id}-{re.sub('[^A-Za-z0-9.=-]', '_', path)}-{size}.arrow"
        with self._lock:
            indexed = self._open.get(name)
        if indexed is None:
            indexed = self._ready(f"{table}/{path}", name, rows)
        with self._lock:
            self._open[name] = indexed
            self._open.move_to_end(name)
            if len(self._open) > MAPS_MAX:
                self._open.popitem(last=False)
        return indexed

    def _ready(self, source: str, name: str, rows: int) -> IndexedFile:
        try:
            return self._map(name, rows) or self._make(source, name, rows)
        except MemoryError:
            with self._lock:
                self._open.clear()
            return self._map(name, rows) or self._make(source, name, rows)

    def put(self, table_id: str, path: str, *, size: int, content: pa.Table) -> None:
        """Keep a copy of a file that was just written, sorted as it was written."""
        name = f"{table_id}-{re.sub('[^A-Za-z0-9.=-]', '_', path)}-{size}.arrow"
        with contextlib.suppress(OSError):
            self._write(name, _one_batch(content))

    def _map(self, name: str, rows: int) -> IndexedFile | None:
        path = self._folder / name
        try:
            reader = pa.ipc.open_file(pa.memory_map(str(path)))
            if reader.num_record_batches != 1:
                return None
            batch = reader.get_batch(0)
            os.utime(path)
        except OSError as exc:
            if _no_memory(exc) and self._open:
                raise MemoryError from exc
            return None
        except pa.ArrowException:
            return None
        return IndexedFile(batch) if batch.num_rows == rows else None

    def _make(self, source: str, name: str, rows: int) -> IndexedFile:
        table = _read(source)
        if table.num_rows != rows:
            msg = f"{source} has {table.num_rows} rows, its log says {rows}"
            raise InvariantError(msg)
        batch = _one_batch(table)
        if not _ascending(batch):
            batch = batch.take(pa.compute.sort_indices(batch, [("_hash", "ascending")]))
        with contextlib.suppress(OSError):
            self._write(name, batch)
            return self._map(name, rows) or IndexedFile(batch)
        return IndexedFile(batch)

    def _write(self, name: str, batch: pa.RecordBatch) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        temporary = self._folder / f"{uuid.uuid4().hex}.tmp"
        try:
            with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as w:
                w.write_batch(batch)
            temporary.rename(self._folder / name)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        self._made += 1
        if self._made % _SWEEP_EVERY == 1:
            self._sweep()

    def _sweep(self) -> None:
        """Unlink the least recently used copies until the rest fits."""
        found = []
        for path in self._folder.iterdir():
            with contextlib.suppress(OSError):
                status = path.stat()
                found.append((status.st_mtime_ns, status.st_size, path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self._bytes_max:
                return
            path.unlink(missing_ok=True)
            with self._lock:
                self._open.pop(path.name, None)
            total -= size


def _read(source: str) -> pa.Table:
    """Return a data file's rows; without a map of it, where none is allowed.

    Raises:
        InvariantError: If the file is gone or damaged.
    """
    try:
        try:
            return pq.ParquetFile(source, memory_map=True).read(use_threads=False)
        except OSError as exc:
            if not _no_memory(exc):
                raise
            return pq.ParquetFile(source).read(use_threads=False)
    except FileNotFoundError as exc:
        message = f"{source} is gone, though the log of its table shows it"
        raise InvariantError(message, path=source) from exc
    except pa.ArrowInvalid as exc:
        message = f"{source} is damaged: {exc}"
        raise InvariantError(message, path=source) from exc


def _no_memory(exc: OSError) -> bool:
    """Tell a refused map from another failure; Arrow does not always keep the number."""
    return exc.errno == errno.ENOMEM or "Cannot allocate memory" in str(exc)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return all rows as one batch; strings widened so that any size fits."""
    wide = pa.schema([f.with_type(_widen(f.type)) for f in table.schema])
    table = table.cast(wide).combine_chunks()
    batches = table.to_batches()
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=wide)
    if len(batches) != 1:
        msg = f"{table.num_rows} rows fell apart into {len(batches)} batches"
        raise InvariantError(msg)
    return batches[0]


def _widen(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_string(type_):
        return pa.large_string()
    if pa.types.is_binary(type_):
        return pa.large_binary()
    return type_


def _ascending(batch: pa.RecordBatch) -> bool:
    hashes = batch.column(batch.schema.get_field_index("_hash")).to_numpy()
    return bool(np.all(hashes[:-1] <= hashes[1:]))


def _boot_id() -> str:
    """Name this boot; where the system has no such id, this process."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return f"process-{os.getpid()}"
