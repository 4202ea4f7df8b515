"""Local, memory-mapped copies of immutable data files, sorted by `_hash`.

Random keys make every Parquet reader read the whole file, whatever the hit rate; a
mapped copy answers `searchsorted` by touching a few pages. A copy is only a cache:

- It belongs to one file: its name holds table id, path and size, and data files
  never change. The name stands in its content too: a copy of another file, however it
  came to lie under this name, is made anew. It is made under another name and renamed,
  never written in place, since a file that shrinks under a map kills the process.
- It is not synced. Instead its folder is named after the boot of this machine, so
  that pages lost with the power are never trusted.
- Whatever goes wrong with it (no space, truncated, `mmap` refused), the Parquet
  file is read instead: slower, never wrong.
- Where the address space of a process is bounded (`spark.executor.pyspark.memory`),
  maps that are not in use make room for those that are.
- Bounded, by bytes and by half of its disk: the least recently used copies are unlinked before
  one is written; maps of them stay valid. What is mapped tells the disk that it is used, so
  that no process takes another's hottest; what went all the same is made again from the map.
- A disk that is full all the same loses half of the copies, those of earlier boots included,
  and is tried once more: the newest file is hotter than what lies there.

Strings are widened to `large_string`: above 2 GB a `string` column would fall apart
into chunks, and reading one of them would lose rows. The row count is checked.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cbp.engine.nameless import map_is_refused
from cbp.engine.state.access import choose_rows, is_small
from cbp.engine.state.eviction import evict, other_boots, remove_boots, remove_older
from cbp.engine.state.lookup import IndexedFile, Int64s, RowGroups, StateRows, ascending
from cbp.engine.state.vectorcache import VectorCache
from cbp.errors import DiskFullError, InvariantError

__all__ = ["IndexCache", "index_cache"]

BYTES_MAX_DEFAULT = 20 << 30
MAPS_MAX = 4096
HELD_OVERHEAD = 8 << 10
"""Bytes of objects around the rows of one file; found by a soak of thousands of tiny ones."""

HELD_BYTES_MAX = 64 << 20
"""Rows that lie in no copy and are kept for the next run: small files, and what found no space."""

SCRATCH_SECONDS_MAX = 3600.0
"""Age from which a scratch file is one that its task, which is gone, has left over."""

TOUCH_SECONDS = 60.0
"""A copy in use is touched once in so long; eviction need not know it any better."""

_SWEEPS = 8
"""A process looks at the folder again once it has written this part of what all copies may have."""

_COPY = b"cbp.copy"
"""Names, in a copy's schema, the copy that it is; one without it is from before, and made anew."""

_ORDER, _PHYSICAL = b"cbp.order", b"physical"
"""Marks a copy whose rows do not ascend by hash; nobody writes such files but the black box."""


@lru_cache(maxsize=8)
def index_cache(folder: str) -> IndexCache:
    """Return this process's cache of a folder; workers that are used again keep their maps."""
    return IndexCache(folder)


@dataclass(slots=True)
class _Mapped:
    """A mapped copy, and when its file was last told to be in use."""

    rows: IndexedFile
    touched: float


class IndexCache:
    """Copies below one folder of this machine; safe for many processes at a time.

    Args:
        folder: Of all boots.
        bytes_max: Of the copies on the disk, at a sweep; a single one may be larger.
        clock: Seconds, as the times of files.

    Attributes:
        held_bytes: Of rows that lie in no copy; at most `HELD_BYTES_MAX`.
        vectors: Which of the files' rows are dead.
    """

    def __init__(
        self,
        folder: str,
        *,
        bytes_max: int = BYTES_MAX_DEFAULT,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = Path(folder) / _boot_id()
        self._scratch = self._folder.with_name(f"{self._folder.name}-scratch")
        self._bytes_max = bytes_max
        self._clock = clock
        self._open: OrderedDict[str, _Mapped] = OrderedDict()
        self._held: OrderedDict[str, IndexedFile] = OrderedDict()
        self.held_bytes = 0
        self.vectors = VectorCache()
        self._spent: OrderedDict[str, int] = OrderedDict()
        self._unswept: int | None = None
        self._lock = threading.Lock()

    def open(
        self, table: str, table_id: str, path: str, *, size: int, rows: int, copy: bool = True
    ) -> IndexedFile:
        """Return all rows of a data file.

        Args:
            table: Folder of the table; with `path` it gives the data file.
            rows: Physical rows that the log promises.
            copy: Whether to make the copy that a large file does not have; pointless for
                a file that is about to be replaced.

        Raises:
            InvariantError: If the data file has another number of rows.
        """
        name = _name(table_id, path, size)
        found = self._kept(name)
        if found is None:
            copy = copy and not is_small(rows=rows, size=size)
            found = self._ready(f"{table}/{path}", name, rows, copy=copy)
        return found

    def reader(
        self,
        table: str,
        table_id: str,
        path: str,
        *,
        size: int,
        rows: int,
        wanted: Int64s | None,
    ) -> StateRows:
        """Return a data file for one look-up of these hashes, the cheapest way; see `access`.

        Raises:
            InvariantError: If the data file has another number of rows.
        """
        name = _name(table_id, path, size)
        found = self._kept(name)
        if found is not None:
            return found
        small = is_small(rows=rows, size=size)
        if wanted is not None and not small and not (self._folder / name).exists():
            groups = RowGroups(_open_parquet(f"{table}/{path}", rows))
            touched = groups.rows(groups.touched(wanted))
            spent = self._spent.get(name, 0)
            way = choose_rows(rows=rows, touched=touched, spent=spent)
            if way == "groups":
                self._spend(name, spent + touched)
                return groups
        return self._ready(f"{table}/{path}", name, rows, copy=not small)

    def put(self, table_id: str, path: str, *, size: int, content: pa.Table) -> None:
        """Keep a copy of a file that was just written, sorted as it was written."""
        name = _name(table_id, path, size)
        if is_small(rows=content.num_rows, size=size):
            self._hold(name, IndexedFile(_one_batch(content)))
            return
        with contextlib.suppress(OSError):
            self._write(name, _one_batch(content), in_order=True)

    def scratch(self, name: str) -> Path:
        """Return where a task may put a file of its own, which no other task names.

        Whoever puts it there removes it; what a killed worker left over goes by `tidy_scratch`.
        """
        return self._scratch / name

    def tidy_scratch(self) -> None:
        """Remove scratch files that are old; whoever still maps one keeps it."""
        remove_older(self._scratch, seconds=SCRATCH_SECONDS_MAX, now=self._clock())

    def _kept(self, name: str) -> IndexedFile | None:
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
        return self._touched(name, mapped.rows, now)

    def _touched(self, name: str, rows: IndexedFile, now: float) -> IndexedFile:
        """Tell that a copy is in use; one that another process took is made again."""
        path = self._folder / name
        try:
            os.utime(path, (now, now))
        except FileNotFoundError:
            with contextlib.suppress(OSError, MemoryError):
                self._write(name, rows.batch, in_order=rows.in_order)
                # The map of the old one holds its bytes on the disk, unseen by any sweep.
                return self._map(name, rows.batch.num_rows) or rows
        except OSError:
            pass  # a file system that forbids it; the copy serves
        return rows

    def _hold(self, name: str, rows: IndexedFile) -> IndexedFile:
        """Keep rows that lie in no copy, as long as there is room; old ones go first."""
        with self._lock:
            if name not in self._held and _held_bytes(rows) <= HELD_BYTES_MAX:
                self._held[name] = rows
                self.held_bytes += _held_bytes(rows)
            while self.held_bytes > HELD_BYTES_MAX:
                _, gone = self._held.popitem(last=False)
                self.held_bytes -= _held_bytes(gone)
        return rows

    def _spend(self, name: str, rows: int) -> None:
        with self._lock:
            self._spent[name] = rows
            self._spent.move_to_end(name)
            if len(self._spent) > MAPS_MAX:
                self._spent.popitem(last=False)

    def _ready(self, source: str, name: str, rows: int, *, copy: bool) -> IndexedFile:
        try:
            return self._map(name, rows) or self._make(source, name, rows, copy=copy)
        except MemoryError:
            with self._lock:
                self._open.clear()
                self._held.clear()
                self.held_bytes = 0
            return self._map(name, rows) or self._make(source, name, rows, copy=copy)

    def _map(self, name: str, rows: int) -> IndexedFile | None:
        path = self._folder / name
        try:
            reader = pa.ipc.open_file(pa.memory_map(str(path)))
            if reader.num_record_batches != 1:
                return None
            batch = reader.get_batch(0)
            now = self._clock()
            os.utime(path, (now, now))
        except OSError as exc:
            if map_is_refused(exc) and self._open:
                raise MemoryError from exc
            return None
        except pa.ArrowException:
            return None
        told = batch.schema.metadata or {}
        if batch.num_rows != rows or told.get(_COPY) != name.encode():
            return None
        mapped = IndexedFile(batch.replace_schema_metadata(), sorted_=_ORDER not in told)
        with self._lock:
            self._open[name] = _Mapped(mapped, now)
            self._open.move_to_end(name)
            if len(self._open) > MAPS_MAX:
                self._open.popitem(last=False)
        return mapped

    def _make(self, source: str, name: str, rows: int, *, copy: bool) -> IndexedFile:
        batch = _one_batch(_read(source, rows))
        in_order = ascending(batch)
        if copy:
            with contextlib.suppress(OSError):
                self._write(name, batch, in_order=in_order)
                mapped = self._map(name, rows)
                if mapped is not None:
                    return mapped
        return self._hold(name, IndexedFile(batch, sorted_=in_order))

    def _write(self, name: str, batch: pa.RecordBatch, *, in_order: bool) -> None:
        told = {_COPY: name.encode()} if in_order else {_COPY: name.encode(), _ORDER: _PHYSICAL}
        batch, size = batch.replace_schema_metadata(told), batch.nbytes
        if self._unswept is None or self._unswept < size:
            self._sweep(size)
        try:
            self._put(name, batch)
        except OSError as exc:
            if not DiskFullError.is_told_by(exc) or not self._sweep(size, full=True):
                raise
            self._put(name, batch)
        self._unswept = (self._unswept or 0) - size

    def _put(self, name: str, batch: pa.RecordBatch) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        temporary = self._folder / f"{uuid.uuid4().hex}.tmp"
        try:
            with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as w:
                w.write_batch(batch)
            temporary.rename(self._folder / name)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise

    def _sweep(self, room: int, *, full: bool = False) -> bool:
        """Unlink the least recently used copies, and what old boots left; tell if any went."""
        cache, own = self._folder.parent, self._folder.name
        if self._unswept is None:
            remove_boots(cache, own=own, now=self._clock())
        folders = [self._folder, *(other_boots(cache, own=own) if full else ())]
        gone, most = evict(folders, room=room, bytes_max=self._bytes_max, full=full)
        self._unswept = most // _SWEEPS
        with self._lock:
            # A map holds its bytes on the disk, also of what another process has unlinked.
            for name in list(self._open) if full else gone:
                self._open.pop(name, None)
        return bool(gone)


def _held_bytes(rows: IndexedFile) -> int:
    """Return what held rows cost; of a few rows most of it is what holds them."""
    return rows.memory + HELD_OVERHEAD


def _name(table_id: str, path: str, size: int) -> str:
    return f"{table_id}-{re.sub('[^A-Za-z0-9.=-]', '_', path)}-{size}.arrow"


def _read(source: str, rows: int) -> pa.Table:
    """Return a data file's rows.

    Raises:
        InvariantError: If the file is gone or damaged, or has other rows than its log says.
    """
    file = _open_parquet(source, rows)
    try:
        return file.read(use_threads=False)
    except pa.ArrowInvalid as exc:
        message = f"{source} is damaged: {exc}"
        raise InvariantError(message, path=source) from exc


def _open_parquet(source: str, rows: int) -> pq.ParquetFile:
    """Open a data file; without a map of it, where none is allowed."""
    try:
        try:
            file = pq.ParquetFile(source, memory_map=True)
        except OSError as exc:
            if not map_is_refused(exc):
                raise
            file = pq.ParquetFile(source)
    except FileNotFoundError as exc:
        message = f"{source} is gone, though the log of its table shows it"
        raise InvariantError(message, path=source) from exc
    except pa.ArrowInvalid as exc:
        message = f"{source} is damaged: {exc}"
        raise InvariantError(message, path=source) from exc
    if file.metadata.num_rows != rows:
        message = f"{source} has {file.metadata.num_rows} rows, its log says {rows}"
        raise InvariantError(message, path=source)
    return file


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


def _boot_id() -> str:
    """Name this boot; where the system has no such id, this process."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return f"process-{os.getpid()}"
