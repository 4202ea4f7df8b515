"""Cache of index copies: local, memory-mapped copies of immutable data files of states.

A copy has the rows of its file in the file's order, which is by `_hash`. So a mapped copy answers
`searchsorted` by touching a few pages. The rows of small files are held in memory without a copy. A
large file that has no copy yet is read by row groups while that is cheaper (`lookup.py`). A copy is
only a cache (see the package README):

- It belongs to one data file. Its name has table id, path and size, and the content has the name,
  too. It is written under a temporary name and renamed, never changed in place: a file that shrinks
  under a map kills the process. A damaged copy is dropped and made again, even within a look-up.
- It is not synced. Its folder is named after the boot of this machine instead, so
  pages that were lost in a power cut are never trusted.
- If anything fails (no space, truncated file, `mmap` refused), the Parquet
  file is read instead: slower, never wrong.
- When a process opens a bucket, it unmaps the copies of files that are no longer in it
  (`release`), so its memory does not grow with replaced files. If its address space is
  bounded (`spark.executor.pyspark.memory`), maps that are not in use are closed to make room.
- The copies are bounded, by bytes and by half of their disk (`cache_eviction.py`). A process
  touches the files that it has mapped and uses, so that no other process evicts its hottest copies.

Strings are widened to `large_string`: above 2 GB a `string` column would be split
into chunks, and reading only one of them would lose rows. The row count is checked.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from cbp.engine.columnar.arrow_types import Int64s, as_type
from cbp.engine.delta.deletion_vectors import VectorCache
from cbp.engine.state.cache_eviction import evict, other_boots, remove_boots, remove_older
from cbp.engine.state.copies import (
    CopyDamagedError,
    CopyForeignError,
    map_copy,
    note_dropped,
    write_copy,
)
from cbp.engine.state.lookup import (
    IndexedFile,
    RowGroups,
    StateRows,
    ascending,
    choose_rows,
    is_small,
    wide_schema,
)
from cbp.engine.storage.checked_parquet import CheckedFile, open_parquet
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS, EngineLimits
from cbp.engine.storage.spill_files import map_is_refused
from cbp.errors import DiskFullError, FileDamagedError
from cbp.errors.counts import format_count

BYTES_MAX_DEFAULT = 20 << 30
MAPS_MAX = 4096
HELD_OVERHEAD = 8 << 10
"""Bytes of the objects around one file's rows; from a soak test with thousands of tiny files."""

SCRATCH_SECONDS_MAX = 3600.0
"""A scratch file that is older than this was left by a task that is gone."""

TOUCH_SECONDS = 60.0
"""A copy in use is touched once in this time; eviction needs no finer resolution."""

_SWEEPS = 8
"""A process sweeps again once it has written this fraction (an eighth) of the bound for copies."""

_ORDER, _PHYSICAL = b"cbp.order", b"physical"
"""Marks a copy whose rows do not ascend by hash; this engine writes no such data files."""

_log = logging.getLogger(__name__)


@lru_cache(maxsize=8)
def index_cache(folder: str, limits: EngineLimits) -> IndexCache:
    """Return this process's cache of a folder; reused workers keep their maps."""
    return IndexCache(folder, limits=limits)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A data file: the name of its copy, and its table's id with the folder of its bucket."""

    name: str
    source: str
    path: str
    rows: int
    group: tuple[str, str]


@dataclass(slots=True)
class _Mapped:
    """A mapped copy of a data file, and when it was last touched."""

    rows: IndexedFile
    touched: float
    of: _Wanted


class IndexCache:
    """Index copies below one folder of this machine; many processes may use it at a time.

    Args:
        folder: Folder with a subfolder per boot.
        bytes_max: Maximum number of bytes of copies on the disk after a sweep; a single copy may
            be larger.
        clock: Current time in seconds, on the clock of the files' times.
    """

    def __init__(
        self,
        folder: str,
        *,
        bytes_max: int = BYTES_MAX_DEFAULT,
        clock: Callable[[], float] = time.time,
        limits: EngineLimits = DEFAULT_LIMITS,
    ) -> None:
        self.limits = limits
        self._folder = Path(folder) / _boot_id()
        self._scratch = self._folder.with_name(f"{self._folder.name}-scratch")
        self._bytes_max, self._clock = bytes_max, clock
        self._open: OrderedDict[str, _Mapped] = OrderedDict()
        self._open_in: dict[tuple[str, str], dict[str, str]] = {}
        self._held: OrderedDict[str, IndexedFile] = OrderedDict()
        self.held_bytes = 0
        self.vectors = VectorCache()
        self._spent: OrderedDict[str, int] = OrderedDict()
        self._unswept: int | None = None
        self._lock = threading.Lock()

    def open(
        self, table: str, table_id: str, path: str, *, size: int, rows: int, copy: bool = True
    ) -> IndexedFile:
        """Return all rows of a data file; `FileDamagedError` if it is missing or damaged.

        Args:
            size: The data file's bytes; part of the copy's name, as is `table_id`.
            rows: Physical rows of the file, as the log states them.
            copy: Whether to make a missing copy of a large file; pointless for
                a file that is about to be replaced.
        """
        wanted = _wanted(table, table_id, path, size=size, rows=rows)
        if (indexed := self._cached(wanted)) is not None:
            return indexed
        return self._ready(wanted, copy=copy and not self._is_small(rows, size))

    def reader(
        self, table: str, table_id: str, path: str, *, size: int, rows: int, wanted: Int64s | None
    ) -> StateRows:
        """Return the cheapest reader for one look-up of these hashes; see `choose_rows`."""
        file = _wanted(table, table_id, path, size=size, rows=rows)
        if (kept_rows := self._cached(file)) is not None:
            return kept_rows
        small = self._is_small(rows, size)
        if wanted is not None and not small and not (self._folder / file.name).exists():
            groups = RowGroups(_open_parquet(f"{table}/{path}", rows))
            touched = groups.rows(groups.touched(wanted))
            spent = self._spent.get(file.name, 0)
            if choose_rows(rows=rows, touched=touched, spent=spent) == "groups":
                self._spend(file.name, spent + touched)
                return groups
        return self._ready(file, copy=not small)

    def put(self, table_id: str, path: str, *, size: int, content: pa.Table) -> None:
        """Keep a copy of a file that was just written; `content` has the file's order."""
        name = _name(table_id, path, size)
        if self._is_small(content.num_rows, size):
            self._hold(name, IndexedFile(_one_batch(content)))
            return
        with contextlib.suppress(OSError):
            self._write(name, _one_batch(content, copies=False), in_order=True)

    def release(self, table_id: str, bucket: int, live: Collection[str]) -> None:
        """Unmap copies of a bucket's files that are not `live` any more; users keep their map."""
        with self._lock:
            mapped = self._open_in.get((table_id, f"_bucket={bucket}"), {})
            for path in [path for path in mapped if path not in live]:
                self._close(mapped[path])

    def scratch(self, name: str) -> Path:
        """Return the path for a task's own scratch file, which it removes; the name is unique."""
        return self._scratch / name

    def tidy_scratch(self) -> None:
        """Remove old scratch files; a process that still maps one keeps it."""
        remove_older(self._scratch, seconds=SCRATCH_SECONDS_MAX, now=self._clock())

    def _is_small(self, rows: int, size: int) -> bool:
        return is_small(rows=rows, size=size, rows_max=self.limits.small_file_rows)

    def _cached(self, wanted: _Wanted) -> IndexedFile | None:
        name = wanted.name
        with self._lock:
            if name in self._held:
                self._held.move_to_end(name)
                return self._held[name]
            mapped = self._open.get(name)
            if mapped is None:
                return None
            self._open.move_to_end(name)
            now = self._clock()
            if 0 <= now - mapped.touched < TOUCH_SECONDS:
                return mapped.rows
            mapped.touched = now
        return self._touched(wanted, mapped.rows, now)

    def _touched(self, wanted: _Wanted, rows: IndexedFile, now: float) -> IndexedFile | None:
        """Mark a copy as in use, or make it again if it was evicted; `None` if it was truncated."""
        name = wanted.name
        path = self._folder / name
        if rows.guard is not None and rows.guard.is_shorter():
            self._drop(wanted, "it was truncated")
            return None
        try:
            os.utime(path, (now, now))
        except FileNotFoundError:
            with contextlib.suppress(OSError, MemoryError):
                self._write(name, rows.batch, in_order=rows.in_order)
                # The old map still occupies its bytes on the disk, invisible to every sweep.
                return self._map(wanted) or rows
        except OSError:
            pass  # a file system that forbids it; the copy is still usable
        return rows

    def _hold(self, name: str, rows: IndexedFile) -> IndexedFile:
        """Keep rows without a copy while there is room; the least recently used are dropped."""
        with self._lock:
            if name not in self._held and _held_bytes(rows) <= self.limits.held_bytes:
                self._held[name] = rows
                self.held_bytes += _held_bytes(rows)
            while self.held_bytes > self.limits.held_bytes:
                _, gone = self._held.popitem(last=False)
                self.held_bytes -= _held_bytes(gone)
        return rows

    def _spend(self, name: str, rows: int) -> None:
        with self._lock:
            self._spent[name] = rows
            self._spent.move_to_end(name)
            if len(self._spent) > MAPS_MAX:
                self._spent.popitem(last=False)

    def _ready(self, wanted: _Wanted, *, copy: bool) -> IndexedFile:
        try:
            return self._map(wanted) or self._make(wanted, copy=copy)
        except MemoryError:
            with self._lock:
                self._open.clear()
                self._open_in.clear()
                self._held.clear()
                self.held_bytes = 0
            return self._map(wanted) or self._make(wanted, copy=copy)

    def _map(self, wanted: _Wanted) -> IndexedFile | None:
        name = wanted.name
        path = self._folder / name
        try:
            indexed_file = map_copy(path, name, limits=self.limits)
            now = self._clock()
            os.utime(path, (now, now))
        except OSError as exc:
            if map_is_refused(exc) and self._open:
                raise MemoryError from exc
            return None
        except CopyForeignError:
            return None
        except CopyDamagedError as exc:
            self._drop(wanted, str(exc))
            return None
        batch = indexed_file.batch
        if batch.num_rows != wanted.rows:
            return None
        mapped = IndexedFile(
            batch.replace_schema_metadata(),
            sorted_=_ORDER not in (batch.schema.metadata or {}),
            guard=indexed_file.guard,
            replace=lambda error: self._replaced(wanted, error),
        )
        with self._lock:
            self._open[name] = _Mapped(mapped, now, wanted)
            self._open.move_to_end(name)
            self._open_in.setdefault(wanted.group, {})[wanted.path] = name
            if len(self._open) > MAPS_MAX:
                self._close(next(iter(self._open)))
        return mapped

    def _close(self, name: str) -> None:
        """Forget the map of a copy, if there is one; called under the lock."""
        if (mapped := self._open.pop(name, None)) is None:
            return
        group, path = mapped.of.group, mapped.of.path
        beside = self._open_in.get(group, {})
        if beside.get(path) == name:
            del beside[path]
        if not beside:
            self._open_in.pop(group, None)

    def _replaced(self, wanted: _Wanted, error: CopyDamagedError) -> IndexedFile:
        self._drop(wanted, str(error))
        return self._make(wanted, copy=True)

    def _drop(self, wanted: _Wanted, why: str) -> None:
        """Remove a damaged copy and record it; other processes detect the damage themselves."""
        path = self._folder / wanted.name
        with self._lock:
            self._close(wanted.name)
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        dropped = note_dropped(self._folder.parent, copy=path, source=wanted.source, why=why)
        _log.warning("index copy %(copy)s of %(file)s is discarded and rebuilt: %(why)s", dropped)

    def _make(self, wanted: _Wanted, *, copy: bool) -> IndexedFile:
        name = wanted.name
        batch = _one_batch(_open_parquet(wanted.source, wanted.rows).read())
        in_order = ascending(batch)
        if copy:
            with contextlib.suppress(OSError):
                self._write(name, batch, in_order=in_order)
                if (mapped := self._map(wanted)) is not None:
                    return mapped
        return self._hold(name, IndexedFile(batch, sorted_=in_order))

    def _write(self, name: str, batch: pa.RecordBatch, *, in_order: bool) -> None:
        metadata = {} if in_order else {_ORDER: _PHYSICAL}
        batch, size = batch.replace_schema_metadata(metadata), batch.nbytes
        if self._unswept is None or self._unswept < size:
            self._sweep(size)
        try:
            self._put(name, batch)
        except OSError as exc:
            if not DiskFullError.is_disk_full(exc) or not self._sweep(size, full=True):
                raise
            self._put(name, batch)
        self._unswept = (self._unswept or 0) - size

    def _put(self, name: str, batch: pa.RecordBatch) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        temporary = self._folder / f"{uuid.uuid4().hex}.tmp"
        try:
            write_copy(temporary, name, batch, limits=self.limits)
            temporary.rename(self._folder / name)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise

    def _sweep(self, room: int, *, full: bool = False) -> bool:
        """Evict the least recently used copies and old boots; return whether a copy was evicted."""
        cache, own = self._folder.parent, self._folder.name
        if self._unswept is None:
            remove_boots(cache, own=own, now=self._clock())
        folders = [self._folder, *(other_boots(cache, own=own) if full else ())]
        gone, most = evict(folders, room=room, bytes_max=self._bytes_max, full=full)
        self._unswept = most // _SWEEPS
        with self._lock:
            # An open map occupies the bytes of its file on the disk, even after an unlink.
            for name in list(self._open) if full else gone:
                self._close(name)
        return bool(gone)


def _held_bytes(rows: IndexedFile) -> int:
    return rows.memory + HELD_OVERHEAD


def _wanted(table: str, table_id: str, path: str, *, size: int, rows: int) -> _Wanted:
    folder = path.rpartition("/")[0].rpartition("/")[2]
    return _Wanted(_name(table_id, path, size), f"{table}/{path}", path, rows, (table_id, folder))


def _name(table_id: str, path: str, size: int) -> str:
    return f"{table_id}-{re.sub('[^A-Za-z0-9.=-]', '_', path)}-{size}.arrow"


def _open_parquet(source: str, rows: int) -> CheckedFile:
    try:
        file = open_parquet(source, mapped=True)
    except OSError as exc:
        if not map_is_refused(exc):
            raise
        file = open_parquet(source)
    if file.metadata.num_rows != rows:
        has = format_count(file.metadata.num_rows, "row")
        raise FileDamagedError(source, f"it has {has}, but {rows} in the log of its table")
    return file


def _one_batch(table: pa.Table, *, copies: bool = True) -> pa.RecordBatch:
    """Return all rows as one batch; strings widened so that any size fits.

    With `copies`, the batch is never a view, which would keep a larger table in memory.
    """
    wide = wide_schema(table.schema)
    chunked = (as_type(c, f.type) for c, f in zip(table.columns, wide, strict=True))
    columns = [
        one.combine_chunks() if copies or one.num_chunks != 1 else one.chunk(0) for one in chunked
    ]
    return pa.RecordBatch.from_arrays(columns, schema=wide)


def _boot_id() -> str:
    """Return the id of this boot, or of this process if the system has no boot id."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return f"process-{os.getpid()}"
