"""The state of some buckets in a task: finds records, marks records as deleted.

A row is dead if the published deletion vector or a later, unpublished run deleted it: the task
sees the state as of the newest recorded run, published or not. Row positions are physical rows of
an immutable data file, so they mean the same in the index copy, in the deletion vector and to every
Delta reader.

Small neighboring buckets are processed together (`neighbors`). Signed hashes ascend from bucket to
bucket only among hashes of one sign: the first half of the buckets has one sign, the second half
the other, so no batch has buckets of both halves. A loop calls few groups many times, and calls
those of both halves together: it flips the sign of all hashes (`flipped`), which then ascend over
all buckets. Files contain the hashes with their own signs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from cbp.engine.columnar.arrow_types import Int64s
from cbp.engine.columnar.key_hash import bucket_shift, flipped
from cbp.engine.delta.actions import DeletionVector
from cbp.engine.delta.deletion_vectors import bitmap_of, rows_of
from cbp.engine.state.index_cache import IndexCache
from cbp.engine.state.lookup import IndexedFile, StateRows
from cbp.engine.state.pending_deletes import Deletes, read_deletes
from cbp.engine.storage.external_sort import order_by_columns

_STATE_RECORDS_PER_INPUT = 512
"""Number of state records that weigh as much as one arrived record, since most are not found. If
all are found, because the groups are large, their places take 24 bytes each: 200 MB a window."""


def neighbors(sizes: Mapping[int, int], *, buckets: int, most: int) -> list[tuple[int, ...]]:
    """Return the buckets, ascending, in batches of at most `most` records, or of one bucket."""
    batches: list[tuple[int, ...]] = []
    total = 0
    for bucket in sorted(sizes):
        same_side = batches and (batches[-1][-1] < buckets // 2) == (bucket < buckets // 2)
        if same_side and total + sizes[bucket] <= most:
            batches[-1] = (*batches[-1], bucket)
            total += sizes[bucket]
        else:
            batches.append((bucket,))
            total = sizes[bucket]
    return batches


def state_weight(records: int, *, whole: bool) -> int:
    """Return the weight of a bucket's state, as a number of arrived records."""
    return records if whole else records // _STATE_RECORDS_PER_INPUT


def bucket_edges(hashes: Int64s, chosen: Sequence[int], *, buckets: int, flips: bool) -> list[int]:
    """Return the positions at which the hashes of each neighbor begin, and the end of the last.

    The hashes ascend, and are all in buckets of `chosen`; their signs may be `flipped`.
    """
    shift = bucket_shift(buckets)
    lows = np.array([bucket << shift for bucket in chosen[1:]], np.uint64).view(np.int64)
    lows = flipped(lows) if flips else lows
    return [0, *np.searchsorted(hashes, lows).tolist(), len(hashes)]


def parted(
    hashes: Int64s, chosen: Sequence[int], *, buckets: int, flips: bool = False
) -> Iterator[tuple[int, int, int]]:
    """Yield each neighbor that has hashes, with their range (start, stop); see `bucket_edges`."""
    edges = pairwise(bucket_edges(hashes, chosen, buckets=buckets, flips=flips))
    for bucket, (start, stop) in zip(chosen, edges, strict=True):
        if stop > start:
            yield bucket, start, stop


Positions = npt.NDArray[np.int64]

_DIED_ROWS_MAX = 1_000_000
_SEARCH_COST = 64
"""Rows of a mask that can be marked in the time of one binary search among the dead rows."""

_ASK_COST = 48
"""Rows of a bitmap that can be listed in the time of one membership test."""


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file that is live as of the newest recorded run, by its path within the table.

    `rows` are physical rows, dead ones included: those of the published vector, and those that
    later, unpublished runs deleted.
    """

    path: str
    size: int
    rows: int
    vector: DeletionVector | None = None
    unpublished: tuple[Deletes, ...] = ()

    @property
    def dead(self) -> int:
        """Number of dead rows; the parts add up because a row is deleted only once."""
        published = self.vector.cardinality if self.vector else 0
        return published + sum(deletes.rows for deletes in self.unpublished)

    @property
    def live(self) -> int:
        """Number of rows that are not dead."""
        return self.rows - self.dead


@dataclass(frozen=True, slots=True)
class StateTable:
    """Folder (its full path) and id of a state table, and its live files by bucket; plain data.

    `order` are the columns by which rows of one hash are ordered in a file; empty if they are not.
    """

    folder: str
    id: str
    live: dict[int, tuple[LiveFile, ...]]
    order: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Number of live records."""
        return sum(file.live for files in self.live.values() for file in files)


@dataclass(slots=True)
class RecordPositions:
    """Records of called groups by hash: parallel arrays, with index of file and physical row."""

    hashes: Positions
    file: Positions
    position: Positions

    def part(self, start: int, stop: int) -> RecordPositions:
        """Return the records `start` to `stop`."""
        some = slice(start, stop)
        return RecordPositions(self.hashes[some], self.file[some], self.position[some])

    @classmethod
    def concat(cls, parts: Sequence[RecordPositions]) -> RecordPositions:
        """Return the records of all parts, one part after the other."""
        nothing = np.empty(0, np.int64)
        return cls(
            np.concatenate([nothing, *(part.hashes for part in parts)]),
            np.concatenate([nothing, *(part.file for part in parts)]),
            np.concatenate([nothing, *(part.position for part in parts)]),
        )

    def at(self, chosen: Positions) -> RecordPositions:
        """Return some records, in the order of `chosen`."""
        return RecordPositions(self.hashes[chosen], self.file[chosen], self.position[chosen])


@dataclass(slots=True)
class BucketState:
    """The live files of one bucket, or of some neighbors, opened as needed.

    `find` looks up the records of the called groups, `kill` marks records as deleted, and `deaths`
    returns the rows that this run deleted, by file. Unchanged records cost nothing.

    Attributes:
        buckets: Ascending; so are hashes from bucket to bucket.
        of: Number of buckets of the table; only needed for several buckets.
        flips: Whether callers pass and receive hashes whose signs are `flipped`; then the buckets
            may be of both halves.
        files: The files of all buckets, bucket by bucket.
    """

    table: StateTable
    cache: IndexCache
    buckets: tuple[int, ...]
    of: int = 0
    flips: bool = False
    files: tuple[LiveFile, ...] = field(init=False)
    died: list[RecordPositions] = field(init=False, default_factory=list)
    bytes_read: int = field(init=False, default=0)
    lookups: dict[str, int] = field(init=False)
    _numbers: dict[int, int] = field(init=False)
    _starts: list[int] = field(init=False)
    _died_rows: int = field(init=False, default=0)
    _deaths: dict[int, BitMap64] = field(init=False, default_factory=dict)
    _readers: dict[int, StateRows] = field(init=False, default_factory=dict)
    _dead: dict[int, BitMap64] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        parts = [self.table.live.get(bucket, ()) for bucket in self.buckets]
        self.files = tuple(chain.from_iterable(parts))
        self._numbers = {bucket: number for number, bucket in enumerate(self.buckets)}
        self._starts = list(accumulate(map(len, parts), initial=0))
        self.lookups = {"index": 0, "scan": 0}
        for bucket, files in zip(self.buckets, parts, strict=True):
            self.cache.release(self.table.id, bucket, {file.path for file in files})

    @property
    def row_bytes(self) -> int:
        """Average size of a record in memory, over the files that were read, in bytes."""
        rows = sum(self.files[at].rows for at in self._readers)
        return sum(reader.memory for reader in self._readers.values()) // max(1, rows)

    def places(self, bucket: int) -> Sequence[int]:
        """Return the indexes of a bucket's files in `files`."""
        number = self._numbers[bucket]
        return range(self._starts[number], self._starts[number + 1])

    @property
    def in_memory(self) -> Sequence[int]:
        """The indexes of files in memory, which may have records of all buckets."""
        return ()

    def open(self, at: int) -> IndexedFile:
        """Return all rows of the file `files[at]`, without making an index copy."""
        file, table = self.files[at], self.table
        size, rows = file.size, file.rows
        # No copy: the file is about to be replaced.
        return self.cache.open(table.folder, table.id, file.path, size=size, rows=rows, copy=False)

    def whole(self, at: int) -> IndexedFile:
        """Return all rows of the file `files[at]`, for looking up much of it."""
        file = self._readers.get(at)
        if not isinstance(file, IndexedFile):
            file = self._readers[at] = self.reader(at, None)
        assert isinstance(file, IndexedFile), "the reader for all rows has only some of them"
        return file

    def known(self, at: int, wanted: Positions | None) -> StateRows:
        """Return the reader of the file `files[at]`; later calls return the same one."""
        if at not in self._readers:
            self._readers[at] = self.reader(at, wanted)
        return self._readers[at]

    def reader(self, at: int, wanted: Positions | None) -> StateRows:
        """Return a reader of the file `files[at]` for one look-up of these hashes."""
        file, table = self.files[at], self.table
        size, rows = file.size, file.rows
        return self.cache.reader(
            table.folder, table.id, file.path, size=size, rows=rows, wanted=wanted
        )

    def dead_rows(self, at: int) -> BitMap64:
        """Return the rows of the file `files[at]` that were deleted before this run."""
        bitmap = self._dead.get(at)
        if bitmap is None:
            file, folder = self.files[at], self.table.folder
            bitmap = BitMap64()
            if file.vector:
                bitmap = self.cache.vectors.read(folder, file.vector)
            for deletes in file.unpublished:
                bitmap = bitmap | read_deletes(folder, deletes)  # `|=` would change the cached one
            self._dead[at] = bitmap
        return bitmap

    def live(self, at: int, rows: Positions) -> Positions:
        """Return the given rows of the file `files[at]` that were not deleted before."""
        return rows[self.is_live(at, rows)]

    def is_live(self, at: int, rows: Positions) -> npt.NDArray[np.bool_]:
        """Return which of some rows of the file `files[at]` were not deleted before."""
        dead = self.dead_rows(at) if len(rows) else None
        if not dead:
            return np.ones(len(rows), np.bool_)
        return ~_contains(dead, rows, self.files[at].rows)

    def find(self, wanted: Positions | None) -> RecordPositions:
        """Return the live records of these hashes (ascending, unique); `None` means all.

        Opens only files of buckets that have some of the hashes.
        """
        if wanted is None:
            return _by_hash([self._find_in(at, None) for at in range(len(self.files))])
        asked = self.files_of(wanted)
        return _by_hash([self._find_in(at, wanted[start:stop]) for at, start, stop in asked])

    def forget_parts(self) -> None:
        """Forget readers of parts of files: a file that is read again may be worth a copy."""
        kept = self._readers.items()
        self._readers = {at: reader for at, reader in kept if isinstance(reader, IndexedFile)}

    def edges(self, hashes: Positions) -> list[int]:
        """Return where the hashes of each bucket begin, and the end; see `bucket_edges`."""
        if len(self.buckets) == 1:
            return [0, len(hashes)]
        return bucket_edges(hashes, self.buckets, buckets=self.of, flips=self.flips)

    def files_of(self, hashes: Positions) -> Iterator[tuple[int, int, int]]:
        """Yield the index of each file that may have some of the hashes, and their range."""
        for bucket, start, stop in self.buckets_of(hashes):
            for at in self.places(bucket):
                yield at, start, stop

    def buckets_of(self, hashes: Positions) -> Iterator[tuple[int, int, int]]:
        """Yield each bucket that has some of the hashes, with their range (start, stop)."""
        if len(self.buckets) < len(hashes) or len(self.buckets) == 1:
            edges = pairwise(self.edges(hashes))
            ranges = zip(self.buckets, edges, strict=True)
            yield from ((bucket, start, stop) for bucket, (start, stop) in ranges if stop > start)
            return
        signed = flipped(hashes) if self.flips else hashes
        numbers = (signed.view(np.uint64) >> np.uint64(bucket_shift(self.of))).tolist()
        start = 0
        for stop in range(1, len(numbers) + 1):
            if stop == len(numbers) or numbers[stop] != numbers[start]:
                yield numbers[start], start, stop
                start = stop

    def as_filed(self, at: int, hashes: Positions) -> Positions:
        """Convert hashes of callers to those of the file `files[at]`, or the other way round."""
        return flipped(hashes) if self.flips else hashes

    def _find_in(self, at: int, wanted: Positions | None) -> RecordPositions:
        if wanted is not None:
            wanted = self.as_filed(at, wanted)
        reader = self.known(at, wanted)
        self.lookups[reader.way(wanted)] += 1
        positions, hashes = reader.find(wanted)
        # Most files have none of a few keys; then their dead rows need not be read.
        dead = self.dead_rows(at) if len(positions) else None
        if dead:
            live = ~_contains(dead, positions, self.files[at].rows)
            positions, hashes = positions[live], hashes[live]
        hashes = self.as_filed(at, hashes)
        return RecordPositions(hashes, np.full(len(positions), at, np.int64), positions)

    def take(self, positions: RecordPositions, columns: Sequence[str]) -> pa.Table:
        """Return the rows of one or more records that `find` found, in the order of `positions`."""
        parts, places = [], []
        for at in _files_of(positions.file):
            mine = np.flatnonzero(positions.file == at)
            parts.append(self._readers[at].take(positions.position[mine], columns))
            places.append(mine)
        table = pa.concat_tables(parts)
        self.bytes_read += table.nbytes
        if len(parts) == 1:
            return table
        return table.take(pa.array(np.argsort(np.concatenate(places), kind="stable")))

    def records(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield all live records ordered by hash, in batches: smaller ones if they are wide."""
        positions = self.find(None)
        files = (self.whole(at) for at in range(len(self.files)))
        step = min((file.at_a_time(columns, self.cache.limits) for file in files), default=1)
        for start in range(0, len(positions.hashes), step):
            yield self.take(positions.part(start, start + step), columns)

    def kill(self, dead: RecordPositions) -> None:
        """Mark records as deleted by this run."""
        if len(dead.position):
            self.died.append(dead)
            self._died_rows += len(dead.position)
        if self._died_rows > _DIED_ROWS_MAX:
            self._fold()

    def deaths(self) -> dict[int, BitMap64]:
        """Return the rows that this run deleted, by index of the file."""
        self._fold()
        return self._deaths

    def _fold(self) -> None:
        """Move the deleted rows into bitmaps, which need a fraction of the memory."""
        if not self.died:
            return
        file = np.concatenate([dead.file for dead in self.died])
        position = np.concatenate([dead.position for dead in self.died])
        for at in _files_of(file):
            rows = bitmap_of(position[file == at])
            self._deaths[at] = self._deaths[at] | rows if at in self._deaths else rows
        self.died, self._died_rows = [], 0


def in_order(table: pa.Table, order: Sequence[str]) -> pa.Table:
    """Return records sorted by hash, then by the columns of `order`."""
    if order:
        return table.take(pa.array(order_by_columns(table, ["_hash", *order])))
    hashes = table.column("_hash").to_numpy()
    if np.all(hashes[1:] >= hashes[:-1]):
        return table
    return table.take(pa.array(np.argsort(hashes, kind="stable")))


def _by_hash(parts: Sequence[RecordPositions]) -> RecordPositions:
    full = [part for part in parts if len(part.hashes)]
    if len(full) == 1:
        return full[0]
    every = RecordPositions.concat(full)
    return every.at(np.argsort(every.hashes, kind="stable"))


def _files_of(file: Positions) -> list[int]:
    if bool(np.all(file == file[0])):
        return [int(file[0])]
    few: list[int] = np.flatnonzero(np.bincount(file)).tolist()
    return few


def _contains(dead: BitMap64, positions: Positions, rows: int) -> npt.NDArray[np.bool_]:
    """Return which of some positions are dead; the cost depends on the shorter side."""
    if len(positions) * _ASK_COST < len(dead):
        asked = map(dead.__contains__, positions.tolist())
        return np.fromiter(asked, np.bool_, len(positions))
    gone = rows_of(dead)
    if len(positions) * _SEARCH_COST < rows:
        nearest = np.minimum(np.searchsorted(gone, positions), len(gone) - 1)
        return np.asarray(gone[nearest] == positions)
    mask = np.zeros(rows, np.bool_)
    mask[gone] = True
    return mask[positions]
