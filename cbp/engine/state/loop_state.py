"""The state of some neighboring buckets during a loop: files, and writes of supersteps.

    superstep -> find, kill (`BucketState`)     the state as the superstep before left it
              -> add                             records that the next superstep sees
              -> turn                            the next superstep begins
    end       -> deaths of files, live records that the loop wrote
    snapshot  -> changes, go_on_from (`cbp.engine.task.superstep_log`)

The records that supersteps wrote are files in memory, numbered after those of the table, so that
the rest of the engine reads them like any other. Two of them are merged, without their dead
records, once the newer one has as many records as are live in the older one, or if the live ones
are few and small. So there are few files whatever the number of supersteps, and each record is
copied seldom. If memory is scarce, they are mapped temporary files: a merge then writes several of
some megabytes each, which ascend by hash and are later merged as one file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from cbp.engine.columnar.arrow_types import with_types
from cbp.engine.delta.deletion_vectors import live_in, rows_of
from cbp.engine.state.bucket_state import (
    BucketState,
    LiveFile,
    Positions,
    RecordPositions,
    in_order,
)
from cbp.engine.state.lookup import IndexedFile, StateRows, wide_schema
from cbp.engine.state.run_files import state_file_schema
from cbp.engine.storage.external_sort import sorted_tables
from cbp.engine.storage.file_sizes import FileCutter, halves
from cbp.engine.storage.held_records import HeldRecords, Room, mapped
from cbp.model.dataflow.stage import StateSpec

_HASH = "_hash"
_SEQ = "_seq"
_GONE = ["path", "rows"]
_OVERLAY_ROWS, _OVERLAY_BYTES = 4_096, 1 << 20
"""A file in memory with at most these rows and bytes is merged with any newer one: a look-up in one
more file would take as long as sorting and copying them."""


@dataclass(slots=True)
class _Part:
    """Live records to be merged, of a table or a file in memory; some have narrow types."""

    rows: int
    nbytes: int
    tables: Callable[[], Iterator[pa.Table]]


@dataclass(slots=True)
class LoopState(BucketState):
    """Files of some neighboring buckets, and a loop's records, whose memory `room` counts."""

    spec: StateSpec = field(kw_only=True)
    room: Room = field(kw_only=True, default_factory=lambda: Room("", sys.maxsize))
    memory: int = field(init=False, default=0)
    on_disk: int = field(init=False, default=0)
    _fixed: int = field(init=False)
    _written: list[IndexedFile] = field(init=False, default_factory=list)
    _is_mapped: list[bool] = field(init=False, default_factory=list)
    _tiers: list[int] = field(init=False, default_factory=list)
    _new: HeldRecords = field(init=False)
    _gone: dict[int, BitMap64] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        BucketState.__post_init__(self)
        self._fixed = len(self.files)
        self._new = HeldRecords(self.room)
        self.room.holders.append(self)

    @property
    def in_memory(self) -> Sequence[int]:
        """The files that the loop wrote; see `BucketState`."""
        return range(self._fixed, len(self.files))

    def reader(self, at: int, wanted: Positions | None) -> StateRows:
        """Return a reader of the file `files[at]`; see `BucketState`."""
        if at >= self._fixed:
            return self._written[at - self._fixed]
        return BucketState.reader(self, at, wanted)

    def as_filed(self, at: int, hashes: Positions) -> Positions:
        """Return hashes as the file `files[at]` has them; those in memory have callers' hashes."""
        return BucketState.as_filed(self, at, hashes) if at < self._fixed else hashes

    def files_of(self, hashes: Positions) -> Iterator[tuple[int, int, int]]:
        """Yield files and ranges, as `BucketState`; a file in memory can be of all buckets."""
        yield from BucketState.files_of(self, hashes)
        start, stop = 0, len(hashes)
        for number, file in enumerate(self._written):
            if len(self._written) > len(self._tiers):  # several files of a tier ascend
                own = file.hashes
                start = int(hashes.searchsorted(own[0]))
                stop = int(hashes.searchsorted(own[-1], "right"))
            if stop > start:
                yield self._fixed + number, start, stop

    def add(self, records: pa.Table) -> None:
        """Add records for the next superstep, in the schema of the state's files."""
        if records.num_rows:
            self._new.add(records)

    def turn(self) -> None:
        """Begin the next superstep: added records become visible, and deleted ones disappear."""
        for at, rows in self.deaths().items():
            dead, gone = self.dead_rows(at), self._gone.get(at)
            if at < self._fixed and gone is None:  # the first bitmap is shared with other runs
                self._dead[at], self._gone[at] = dead | rows, rows
                continue
            dead |= rows
            if gone is not None:
                gone |= rows
        self._deaths = {}
        self.forget_parts()
        if not self._new.tables:
            return
        new = pa.concat_tables(self._new.take())
        parts = [_Part(new.num_rows, new.nbytes, lambda: iter([new]))]
        size = new.num_rows
        while self._tiers and self._absorbs_last_tier(size):
            parts[:0] = self._take_last_tier()
            size = sum(part.rows for part in parts)
        files = [*self._merged(parts)]
        self._tiers += [len(files)] if files else []
        for table, is_mapped in files:
            self._append(table, is_mapped=is_mapped)

    def _merged(self, parts: Sequence[_Part]) -> Iterator[tuple[pa.Table, bool]]:
        if self.room.has(sum(part.nbytes for part in parts)):
            tables = chain.from_iterable(part.tables() for part in parts)
            schema = self._schema
            table = self._sorted(pa.concat_tables([with_types(one, schema) for one in tables]))
            if table.num_rows:
                yield table, False
            return
        for piece in self._sorted_pieces(parts):
            yield mapped([piece.combine_chunks()]), True

    def _sorted_pieces(self, parts: Sequence[_Part]) -> Iterator[pa.Table]:
        """Yield records in the order of the table's files, some megabytes at a time."""
        limits = self.cache.limits
        cutter = FileCutter(replace(limits, file_bytes=limits.sort_run_bytes))
        order = [_HASH, *self.table.order, _SEQ]
        for table in sorted_tables(self._numbered(parts), order, limits=limits):
            yield from cutter.add(table.drop_columns(_SEQ))
        yield from cutter.rest()

    def _numbered(self, parts: Sequence[_Part]) -> Iterator[pa.Table]:
        """Yield records in small pieces, numbered, so that equal ones stay in their order."""
        limits, start = self.cache.limits, 0
        rows_max, bytes_max = limits.file_rows, limits.sort_run_bytes // 4
        for table in chain.from_iterable(part.tables() for part in parts):
            for piece in halves(table, rows_max=rows_max, bytes_max=bytes_max):
                stop = start + piece.num_rows
                numbers = pa.array(np.arange(start, stop))
                yield with_types(piece, self._schema).append_column(_SEQ, numbers)
                start = stop

    def _append(self, table: pa.Table, *, is_mapped: bool) -> None:
        file = IndexedFile(_one_batch(table))
        self.files = (*self.files, LiveFile("", 0, table.num_rows))
        self._written.append(file)
        self._is_mapped.append(is_mapped)
        if is_mapped:
            self.on_disk += file.memory
            self.room.hold_on_disk(file.memory)
        else:
            self.memory += file.memory
            self.room.hold(file.memory)

    def spill(self) -> None:
        """Move the loop's records to mapped files; see `cbp.engine.storage.held_records`."""
        for number, file in enumerate(self._written):
            if self._is_mapped[number]:
                continue
            at = self._fixed + number
            other = IndexedFile(_one_batch(mapped([pa.Table.from_batches([file.batch])])))
            self._written[number], self._is_mapped[number] = other, True
            if at in self._readers:
                self._readers[at] = other
            self.memory -= file.memory
            self.on_disk += file.memory
            self.room.moved(file.memory)

    @property
    def bytes_changed(self) -> int:
        """Approximate size of `changes` in bytes."""
        deleted = sum(map(len, self._gone.values())) // 8
        return deleted + sum(int(file.batch.nbytes) for file in self._written)

    def changes(self) -> tuple[pa.Table, pa.Table]:
        """Return what the loop deleted from files, and its live records; call after `turn`."""
        paths = [self.files[at].path for at in self._gone]
        bitmaps = [bytes(bitmap.serialize()) for bitmap in self._gone.values()]
        gone = pa.table([pa.array(paths, pa.string()), pa.array(bitmaps, pa.binary())], _GONE)
        written = [table for part in self._parts() for table in part.tables()]
        return gone, pa.concat_tables([self._schema.empty_table(), *written])

    def go_on_from(self, gone: pa.Table, written: pa.Table) -> None:
        """Restore the progress of an earlier loop on the same table, before the first superstep."""
        places = {file.path: at for at, file in enumerate(self.files)}
        for path, bitmap in zip(*(gone[name].to_pylist() for name in _GONE), strict=True):
            at, rows = places[path], BitMap64.deserialize(bitmap)
            self._dead[at], self._gone[at] = self.dead_rows(at) | rows, rows
        self.add(written)
        self.turn()

    def gone(self) -> RecordPositions:
        """Return the records of the table's files that the loop deleted; call after `turn`."""
        files = [np.full(len(rows), at, np.int64) for at, rows in self._gone.items()]
        rows = [rows_of(bitmap).astype(np.int64) for bitmap in self._gone.values()]
        nothing = np.empty(0, np.int64)
        file, position = np.concatenate([nothing, *files]), np.concatenate([nothing, *rows])
        return RecordPositions(np.zeros(len(file), np.int64), file, position)

    def born(self) -> Iterator[pa.Table]:
        """Yield the remaining records of the loop, in order; call after `turn`."""
        parts = self._parts()
        if not self.room.on_disk or self.room.has(sum(part.nbytes for part in parts)):
            tables = chain.from_iterable(part.tables() for part in parts)
            yield self._sorted(pa.concat_tables([self._schema.empty_table(), *tables]))
        else:
            yield from self._sorted_pieces(parts)

    @property
    def _schema(self) -> pa.Schema:
        return wide_schema(state_file_schema(self.spec))

    def _parts(self) -> list[_Part]:
        return [self._live(at) for at in range(self._fixed, len(self.files))]

    def _live(self, at: int) -> _Part:
        file, dead = self._written[at - self._fixed], self.dead_rows(at)

        def tables() -> Iterator[pa.Table]:
            table = with_types(pa.Table.from_batches([file.batch]), self._schema)
            yield table.take(pa.array(live_in(dead, 0, table.num_rows))) if dead else table

        return _Part(self.files[at].rows - len(dead), file.memory, tables)

    def _absorbs_last_tier(self, rows: int) -> bool:
        """Return whether this many newer records are merged with the last tier's live records."""
        many = len(self.files)
        last = range(many - self._tiers[-1], many)
        live = sum(self.files[at].rows - len(self.dead_rows(at)) for at in last)
        size = sum(file.memory for file in self._written[-self._tiers[-1] :])
        return live <= max(rows, _OVERLAY_ROWS if size <= _OVERLAY_BYTES else 0)

    def _take_last_tier(self) -> list[_Part]:
        parts = list[_Part]()
        for _ in range(self._tiers.pop()):
            at = len(self.files) - 1
            parts.insert(0, self._live(at))
            self._readers.pop(at, None)
            self._dead.pop(at, None)
            self.files, size = self.files[:at], self._written.pop().memory
            memory, on_disk = (0, size) if self._is_mapped.pop() else (size, 0)
            self.memory, self.on_disk = self.memory - memory, self.on_disk - on_disk
            self.room.free(memory, on_disk)
        return parts

    def _sorted(self, table: pa.Table) -> pa.Table:
        return in_order(with_types(table, self._schema), self.table.order)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    (batch,) = table.combine_chunks().to_batches()
    return batch
