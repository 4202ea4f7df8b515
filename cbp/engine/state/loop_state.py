"""The state of some neighboring buckets during a loop: files, and writes of supersteps.

    superstep -> find, kill (`BucketState`)     the state as the superstep before left it
              -> add                             records that the next superstep sees
              -> turn                            the next superstep begins
    end       -> deaths of files, live records that the loop wrote
    snapshot  -> changes, go_on_from (`cbp.engine.task.superstep_log`)

What supersteps wrote are files in memory, numbered after those of the table, so that the rest of
the engine reads them like any other. Two of them are merged once the newer one is as large as the
older, without the records that are dead, so there are few of them whatever the number of
supersteps, and each record is copied seldom.

They hold what the loop changed, not what it read. That it fits in memory is for the caller to see
(`bytes_changed`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from cbp.engine.delta.deletion_vectors import rows_of
from cbp.engine.state.bucket_state import BucketState, LiveFile, Positions, RecordPositions
from cbp.engine.state.lookup import IndexedFile, StateRows
from cbp.engine.state.run_files import state_file_schema
from cbp.engine.storage.external_sort import order_by_columns
from cbp.model.dataflow.stage import StateSpec

_HASH = "_hash"
_GONE = ["path", "rows"]
_WIDE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
"""As in the index copies: the rows of any file can follow those of any other."""


@dataclass(slots=True)
class LoopState(BucketState):
    """The files of some neighbors, and the writes of a loop; see the module header."""

    spec: StateSpec = field(kw_only=True)
    _fixed: int = field(init=False)
    _written: list[IndexedFile] = field(init=False, default_factory=list)
    _new: list[pa.Table] = field(init=False, default_factory=list)
    _gone: dict[int, BitMap64] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        BucketState.__post_init__(self)
        self._fixed = len(self.files)

    def places(self, bucket: int) -> Sequence[int]:
        """Return the indexes of a bucket's files in `files`, and of all files in memory."""
        fixed = BucketState.places(self, bucket)
        return (*fixed, *range(self._fixed, len(self.files))) if self._written else fixed

    def reader(self, at: int, wanted: Positions | None) -> StateRows:
        """Return a reader of the file `files[at]`; see `BucketState`."""
        if at >= self._fixed:
            return self._written[at - self._fixed]
        return BucketState.reader(self, at, wanted)

    def find(self, wanted: Positions | None) -> RecordPositions:
        """Return the live records of these hashes (ascending, unique); `None` means all."""
        parts = [
            self._find_in(at, mine)
            for bucket, mine in zip(self.buckets, self._by_bucket(wanted), strict=True)
            if mine is None or len(mine)
            for at in BucketState.places(self, bucket)
        ]
        parts += [self._find_in(at, wanted) for at in range(self._fixed, len(self.files))]
        return _by_hash(parts)

    def add(self, records: pa.Table) -> None:
        """Take records that the next superstep sees, in the schema of the state's files."""
        self._new.append(records)

    def turn(self) -> None:
        """Begin the next superstep: added records become visible, and deleted ones disappear."""
        for at, rows in self.deaths().items():
            self._dead[at] = self.dead_rows(at) | rows
            if at < self._fixed:
                self._gone[at] = self._gone[at] | rows if at in self._gone else rows
        self._deaths = {}
        # A file that was read by parts may be worth a copy by now: the cache is asked again.
        self._readers = {
            at: reader for at, reader in self._readers.items() if isinstance(reader, IndexedFile)
        }
        if not self._new:
            return
        new, self._new = self._sorted(pa.concat_tables(self._new)), []
        while self._written and len(self._written[-1].hashes) <= new.num_rows:
            new = self._sorted(pa.concat_tables([self._live(len(self.files) - 1), new]))
            self._drop_last()
        if new.num_rows:
            self.files = (*self.files, LiveFile("", 0, new.num_rows))
            self._written.append(IndexedFile(_one_batch(new)))

    @property
    def bytes_changed(self) -> int:
        """About how many bytes `changes` has."""
        deleted = sum(map(len, self._gone.values())) // 8
        return deleted + sum(int(file.batch.nbytes) for file in self._written)

    def changes(self) -> tuple[pa.Table, pa.Table]:
        """Return the progress of the loop; call after `turn`. `go_on_from` is the inverse.

        Returns:
            The deleted rows of the table's files, as bitmaps; the live records that it wrote.
        """
        paths = [self.files[at].path for at in self._gone]
        bitmaps = [bytes(bitmap.serialize()) for bitmap in self._gone.values()]
        gone = pa.table([pa.array(paths, pa.string()), pa.array(bitmaps, pa.binary())], _GONE)
        written = [self._live(at) for at in range(self._fixed, len(self.files))]
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

    def born(self) -> pa.Table:
        """Return the records that the loop wrote and that are left; call after `turn`."""
        parts = [self._live(at) for at in range(self._fixed, len(self.files))]
        empty = self._schema.empty_table()
        return self._sorted(pa.concat_tables([empty, *parts]))

    @property
    def _schema(self) -> pa.Schema:
        fields = state_file_schema(self.spec)
        return pa.schema([field.with_type(_WIDE.get(field.type, field.type)) for field in fields])

    def _live(self, at: int) -> pa.Table:
        """Return the live records of a file in memory."""
        file = self._written[at - self._fixed]
        table = pa.Table.from_batches([file.batch]).cast(self._schema)
        rows = np.arange(table.num_rows)
        live = self.live(at, rows)
        return table if len(live) == len(rows) else table.take(pa.array(live))

    def _drop_last(self) -> None:
        at = len(self.files) - 1
        self.files, self._written = self.files[:-1], self._written[:-1]
        self._readers.pop(at, None)
        self._dead.pop(at, None)

    def _sorted(self, table: pa.Table) -> pa.Table:
        """Return records in the order of the table's files."""
        table = table.cast(self._schema)
        hashes = table.column(_HASH).to_numpy()
        if not self.table.order:
            if np.all(hashes[1:] >= hashes[:-1]):
                return table
            return table.take(pa.array(np.argsort(hashes, kind="stable")))
        return table.take(pa.array(order_by_columns(table, [_HASH, *self.table.order])))


def _by_hash(parts: Sequence[RecordPositions]) -> RecordPositions:
    """Return the records of all parts, ordered by hash."""
    full = [part for part in parts if len(part.hashes)]
    if len(full) == 1:
        return full[0]
    every = RecordPositions.concat(full)
    return every.at(np.argsort(every.hashes, kind="stable"))


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return all rows, of which there is one at least, as one batch."""
    (batch,) = table.combine_chunks().to_batches()
    return batch
