"""Look-up in one data file: rows are found by hash and taken by position.

A position is the physical row in the Parquet file, even if a copy has another order, so it
means the same in deletion vectors. `IndexedFile` has all rows. `RowGroups` reads only those
row groups of the Parquet file that can contain wanted rows. Both find the same rows for the same
hashes, in ascending position within ascending hash (tests/cbp/engine/state/test_lookup.py).

The access path is chosen by cost. The figures were measured on one core of two, warm pages, 1.25 M
rows of (url of 31 characters, BIGINT, hash), 17 MB of Parquet (`tests/bench/test_lookups.py`):

1. *Where the rows come from.* A mapped copy sorted by hash (0.5 ms to open), the row groups of the
   Parquet file whose range of hashes is wanted (8 ms each), or all of the file (74 ms; 93 ms if it
   is copied on the way). A copy pays only if it is used again, so row groups are read directly
   until that has cost a certain part of the copy.
2. *Which side is searched.* Searching each wanted hash among the rows costs 30 ns per wanted hash
   (1,250 of 1.25 M: 0.15 ms). Searching each row among the wanted hashes costs 25 ns per row (31
   ms). The shorter side is searched in the longer.

`TimeOrder` has the rows of a file in the order of their times, for timers. The earliest rows are
sorted once per file and process, as many as are due and some thousands ahead. All times are read
again only when all of these rows are due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from cbp.engine.columnar.arrow_types import Int64s
from cbp.engine.columnar.groups import span_rows
from cbp.engine.delta.deletion_vectors import live_in, rows_of
from cbp.engine.state.copies import CopyDamagedError, Guard
from cbp.engine.state.second_key_order import SecondOrder
from cbp.engine.storage.checked_parquet import CheckedFile
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.file_sizes import bytes_unpacked, rows_at_a_time
from cbp.model.flow.schema import Schema

_CHUNK_ROWS = 64


class TimeOrder:
    """Rows of one file by their times in us since 1970; `ahead` are sorted beyond the due ones."""

    def __init__(self, times: Int64s, *, ahead: int) -> None:
        self._times, self._ahead = times, ahead
        self._earliest = np.empty(0, np.int64), np.empty(0, np.int64)

    def until(self, until_us: int) -> Int64s:
        """Return all rows up to a time, by time."""
        rows, times = self._reach(until_us)
        return rows[: np.searchsorted(times, until_us, "right")]

    def after(self, until_us: int) -> Iterator[tuple[Int64s, Int64s]]:
        """Yield the rows after a time, and their times, in growing parts ordered by time."""
        rows, times = self._reach(until_us)
        start, size = int(np.searchsorted(times, until_us, "right")), _CHUNK_ROWS
        while start < len(self._times):
            if start == len(rows):
                last_us = max(times[-1], until_us + 1) if start else until_us + 1
                rows, times = self._sort(2 * start + 1)
                # Rows of one time may now have another order: those of the last time come again.
                start = int(np.searchsorted(times, last_us, "left"))
            stop = min(start + size, len(rows))
            yield rows[start:stop], times[start:stop]
            start, size = stop, 2 * size

    def _reach(self, until_us: int) -> tuple[Int64s, Int64s]:
        """Return the earliest rows, by time, at least all up to `until_us`; and their times."""
        rows, times = self._earliest
        if len(rows) == len(self._times) or (len(rows) and times[-1] > until_us):
            return rows, times
        return self._sort(int(np.count_nonzero(self._times <= until_us)) + self._ahead)

    def _sort(self, many: int) -> tuple[Int64s, Int64s]:
        """Return and keep at least `many` of the earliest rows; threads need no lock."""
        rows = np.arange(len(self._times))
        if many < len(rows):
            rows = np.argpartition(self._times, many)[:many]
        rows = rows[np.argsort(self._times[rows], kind="stable")]
        self._earliest = rows, self._times[rows]
        return self._earliest


SMALL_BYTES = 256 << 10
"""Up to this size, and `EngineLimits.small_file_rows`, Parquet is read in 0.6 ms; a copy is mapped
in 0.3 ms and written in 0.5 ms. Files of this size are merged away after a few runs (tier zero
of `cbp.engine.state.bucket_compaction`)."""

_GROUPS_SHARE_MAX = 0.25
"""Share of a file that all look-ups together may read directly before its copy is made."""

_SCAN_FROM = 0.85
"""Wanted hashes per row from which scanning the rows costs less than searching them."""


def choose_rows(*, rows: int, touched: int, spent: int) -> Literal["copy", "groups"]:
    """Choose where to read `touched` rows of a large file, after look-ups that read `spent`."""
    return "groups" if spent + touched <= rows * _GROUPS_SHARE_MAX else "copy"


def choose_search(*, rows: int, wanted: int) -> Literal["index", "scan"]:
    """Choose the side to search: `index` searches the wanted hashes among the rows."""
    return "index" if wanted < rows * _SCAN_FROM else "scan"


def is_small(*, rows: int, size: int, rows_max: int) -> bool:
    """Return whether a file is so small that reading it is as fast as mapping a copy."""
    return rows <= rows_max and size <= SMALL_BYTES


_DENSE = 8
"""With more than one wanted hash per this many rows, merging costs less than searching each."""


class StateRows(Protocol):
    """The rows of a data file, for a look-up."""

    @property
    def memory(self) -> int:
        """Size of all rows in memory, uncompressed, in bytes."""

    def find(self, wanted: Int64s | None) -> tuple[Int64s, Int64s]:
        """Return positions and hashes of the rows with these hashes, by (hash, position).

        The hashes ascend, and each comes once; `None` means every row.
        """

    def take(self, positions: Int64s, columns: Sequence[str]) -> pa.Table:
        """Return some rows (at least one) in the given order; adjacent rows are not copied."""

    def way(self, wanted: Int64s | None) -> str:
        """Return how `find` would search: `index` or `scan`."""

    def repeated(self, stride: int, wanted: Int64s | None) -> set[int]:
        """Return hashes that repeat, including every hash with at least `2 * stride` rows."""


class IndexedFile:
    """All rows of one data file, in physical order, in memory or mapped.

    A mapped copy is checked by its guard before it is used. If it is damaged, the rows of the
    data file, which `replace` returns, replace it. Positions mean the same in both.
    """

    def __init__(
        self,
        batch: pa.RecordBatch,
        *,
        sorted_: bool = True,
        guard: Guard | None = None,
        replace: Callable[[CopyDamagedError], IndexedFile] | None = None,
    ) -> None:
        self._batch, self._sorted, self._guard, self._replace = batch, sorted_, guard, replace
        self._hashes: Int64s | None = None
        self._order: Int64s | None = None
        self._memory: int | None = None
        self._repeated: dict[int, set[int]] = {}
        self._columns: dict[str, pa.Array] = {}
        self._second_orders: dict[tuple[str, ...], SecondOrder] = {}
        self._times: TimeOrder | None = None

    @property
    def batch(self) -> pa.RecordBatch:
        """All columns and rows, in physical order; checks every block of a mapped copy first."""
        self._checked(lambda guard: guard.everything())
        return self._batch

    @property
    def columns(self) -> list[str]:
        """Names of all columns."""
        names: list[str] = self._batch.schema.names
        return names

    @property
    def hashes(self) -> Int64s:
        """`_hash` of every row, ascending."""
        if self._hashes is None:
            at = self._batch.schema.get_field_index("_hash")
            self._checked(lambda guard: guard.column(self._batch.column(at)))
            hashes = hashes_of(self._batch)
            if not self._sorted:
                self._order = np.argsort(hashes, kind="stable")
                hashes = hashes[self._order]
            self._hashes = hashes
        return self._hashes

    @property
    def memory(self) -> int:
        """Bytes of all rows; cached, since Arrow takes 14 us to add up its buffers in every run."""
        if self._memory is None:
            self._memory = int(self._batch.nbytes)
        return self._memory

    @property
    def in_order(self) -> bool:
        """Whether the rows are sorted by hash."""
        return self._sorted

    @property
    def guard(self) -> Guard | None:
        """The guard of a mapped copy; `None` if the rows are in memory."""
        return self._guard

    def _checked(self, check: Callable[[Guard], None]) -> None:
        """Check rows before they are used; if they are damaged, switch to the data file's."""
        while self._guard is not None and not self._guard.done:
            try:
                check(self._guard)
                return
            except CopyDamagedError as error:
                assert self._replace is not None, "a copy with a guard has no `replace`"
                other = self._replace(error)
            self._batch, self._sorted, self._guard = other._batch, other._sorted, other._guard
            self._hashes = self._order = self._memory = None
            self._columns = {}
            self._replace = other._replace

    def find(self, wanted: Int64s | None) -> tuple[Int64s, Int64s]:
        """Return positions and hashes; see `StateRows`."""
        every = self.hashes
        if wanted is None:
            places, hashes = np.arange(len(every)), every
        else:
            places = matches(every, wanted)
            hashes = every[places]
        return (places if self._order is None else self._order[places]), hashes

    def take(self, positions: Int64s, columns: Sequence[str]) -> pa.Table:
        """Return some rows; see `StateRows`."""
        self._checked(lambda guard: self._pass(guard, positions, columns))
        batch = self._batch.select(list(columns))
        first, many = int(positions[0]), len(positions)
        if positions[-1] - first + 1 == many and np.all(np.diff(positions) == 1):
            every = many == batch.num_rows
            return pa.Table.from_batches([batch if every else batch.slice(first, many)])
        return pa.Table.from_batches([batch.take(pa.array(positions))])

    def record(self, row: int, columns: Sequence[str]) -> tuple[Any, ...]:
        """Return the values of one row; columns of atoms only."""
        if self._guard is not None and not self._guard.done:
            self._checked(lambda guard: self._pass(guard, np.array([row]), columns))
        return tuple([self._column(name)[row].as_py() for name in columns])

    def _pass(self, guard: Guard, positions: Int64s, columns: Sequence[str]) -> None:
        for name in columns:
            guard.rows(self._batch.column(self._batch.schema.get_field_index(name)), positions)

    def second_order(
        self, columns: Schema, *, ranges: tuple[Int64s, Int64s] | None = None
    ) -> SecondOrder:
        """Return the places of the rows in the order of (hash, columns); one object per file.

        `ranges` have the first place and the last place + 1 of each hash whose rows are used; only
        their order is checked.
        """
        order = self._second_orders.get(columns.names)
        if order is None:
            hashes, types = self.hashes, [column.type for column in columns.fields]
            order = self._second_orders[columns.names] = SecondOrder(hashes, self._order, types)
        read = partial(self._sound, columns.names)
        if ranges is None:
            order.check(read)
        else:
            order.check_ranges(*ranges, read)
        return order

    def _sound(self, names: Sequence[str], rows: Int64s | None) -> list[pa.Array]:
        """Check some rows, or all (`None`), for damage; return the columns."""
        if rows is None:
            self._checked(lambda guard: self._pass_columns(guard, names))
        else:
            self._checked(lambda guard: self._pass(guard, rows, names))
        return [self._column(name) for name in names]

    def time_order(self, column: str, *, ahead: int) -> TimeOrder:
        """Return the rows in the order of a column of times without nulls; made once per file."""
        if self._times is None:
            self._checked(lambda guard: self._pass_columns(guard, (column,)))
            times = self._column(column).cast(pa.int64()).to_numpy()
            self._times = TimeOrder(times, ahead=ahead)
        return self._times

    def _pass_columns(self, guard: Guard, columns: Sequence[str]) -> None:
        for name in columns:
            guard.column(self._column(name))

    def _column(self, name: str) -> pa.Array:
        if name not in self._columns:
            at = self._batch.schema.get_field_index(name)
            self._columns[name] = self._batch.column(at)
        return self._columns[name]

    def at_a_time(self, columns: Sequence[str], limits: EngineLimits) -> int:
        """Return how many rows to read at a time, so that memory stays bounded."""
        size = self._batch.select(list(columns)).nbytes
        return rows_at_a_time(limits, rows=self._batch.num_rows, memory=size)

    def repeated(self, stride: int, wanted: Int64s | None = None) -> set[int]:
        """Return hashes that repeat; see `StateRows`. Empty if the rows are not sorted."""
        if not self._sorted:
            return set()
        stride = 1 << (stride.bit_length() - 1)  # so that there are few different strides
        if stride not in self._repeated:
            samples = self.hashes[::stride]
            self._repeated[stride] = set(samples[1:][samples[1:] == samples[:-1]].tolist())
        return self._repeated[stride]

    def span(self, hash_: int) -> tuple[int, int]:
        """Return the first row of a hash, and its last row + 1."""
        hashes = self.hashes
        first, last = (int(np.searchsorted(hashes, hash_, side)) for side in ("left", "right"))
        return first, last

    def live(self, start: int, stop: int, dead: BitMap64) -> Int64s:
        """Return the live rows at the places `start` to `stop` in the order of the hashes."""
        if self._sorted:
            return live_in(dead, start, stop)
        assert self._order is not None, "`hashes` was not read before"
        rows = self._order[start:stop]
        return rows[~np.isin(rows, rows_of(dead))]

    def others(self, gone: Int64s) -> Int64s:
        """Return the hashes not in `gone` (ascending, unique), once for each row."""
        spans = [self.span(hash_) for hash_ in gone.tolist()]
        starts = [0, *(last for _, last in spans)]
        stops = [*(first for first, _ in spans), len(self.hashes)]
        return np.concatenate([self.hashes[a:b] for a, b in zip(starts, stops, strict=True)])

    def way(self, wanted: Int64s | None) -> str:
        """Return how `find` would search; see `StateRows`."""
        if wanted is None:
            return "scan"
        return choose_search(rows=self._batch.num_rows, wanted=len(wanted))


class RowGroups:
    """A Parquet file, read by row group; row groups without statistics always. Not thread-safe."""

    def __init__(self, file: CheckedFile) -> None:
        self._file = file
        meta = file.metadata
        counts = [meta.row_group(g).num_rows for g in range(meta.num_row_groups)]
        self._starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        self._ranges = _hash_ranges(meta)
        self._hashes: dict[int, IndexedFile] = {}

    @property
    def memory(self) -> int:
        """Size of all rows according to the file's metadata, in bytes."""
        return bytes_unpacked(self._file.metadata)

    def touched(self, wanted: Int64s) -> list[int]:
        """Return the row groups that can contain these hashes (ascending)."""
        return [
            group
            for group, (low, high) in enumerate(self._ranges)
            if np.searchsorted(wanted, low, "left") < np.searchsorted(wanted, high, "right")
        ]

    def rows(self, groups: Sequence[int]) -> int:
        """Return the total number of rows of some row groups."""
        return int(sum(self._starts[group + 1] - self._starts[group] for group in groups))

    def find(self, wanted: Int64s | None) -> tuple[Int64s, Int64s]:
        """Return positions and hashes; see `StateRows`."""
        groups = range(len(self._ranges)) if wanted is None else self.touched(wanted)
        positions, hashes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for group in groups:
            rows, values = self._hashes_of(group).find(wanted)
            positions.append(rows + self._starts[group])
            hashes.append(values)
        every = np.concatenate(hashes)
        order = np.argsort(every, kind="stable")
        return np.concatenate(positions)[order], every[order]

    def take(self, positions: Int64s, columns: Sequence[str]) -> pa.Table:
        """Return some rows; see `StateRows`."""
        groups = np.searchsorted(self._starts, positions, "right") - 1
        needed = np.unique(groups)
        offsets = np.zeros(len(self._starts), np.int64)
        sizes = self._starts[needed + 1] - self._starts[needed]
        offsets[needed] = self._starts[needed] - (np.cumsum(sizes) - sizes)
        table = self._read(needed.tolist(), list(columns))
        return table.take(pa.array(positions - offsets[groups]))

    def repeated(self, stride: int, wanted: Int64s | None) -> set[int]:
        """Return hashes that repeat; see `StateRows`."""
        groups = range(len(self._ranges)) if wanted is None else self.touched(wanted)
        stride = max(1, stride // 2)  # a run of equal hashes may span two row groups
        return {hash_ for group in groups for hash_ in self._hashes_of(group).repeated(stride)}

    def way(self, wanted: Int64s | None) -> str:
        """Return how `find` would search; see `StateRows`."""
        return "scan"

    def _read(self, groups: list[int], columns: list[str]) -> pa.Table:
        table = self._file.read_row_groups(groups, columns)
        return table.select(columns).cast(wide_schema(table.schema))

    def _hashes_of(self, group: int) -> IndexedFile:
        if group not in self._hashes:
            (batch,) = self._read([group], ["_hash"]).combine_chunks().to_batches()
            self._hashes[group] = IndexedFile(batch, sorted_=ascending(batch))
        return self._hashes[group]


def matches(hashes: Int64s, wanted: Int64s) -> Int64s:
    """Return the places in `hashes` (ascending) of `wanted` (ascending, unique); ascending."""
    if not len(hashes) or not len(wanted):
        return np.empty(0, np.int64)
    if choose_search(rows=len(hashes), wanted=len(wanted)) == "scan":
        nearest = np.minimum(np.searchsorted(wanted, hashes, "left"), len(wanted) - 1)
        return np.flatnonzero(wanted[nearest] == hashes)
    left = np.searchsorted(hashes, wanted, "left")
    hit = hashes[np.minimum(left, len(hashes) - 1)] == wanted
    starts, wanted_hashes = left[hit], wanted[hit]
    # Most keys have one record in a file; only if the next row has the same hash, search for more.
    follower = np.minimum(starts + 1, len(hashes) - 1)
    if not np.any((hashes[follower] == wanted_hashes) & (follower > starts)):
        unique: Int64s = starts
        return unique
    lengths = np.searchsorted(hashes, wanted_hashes, "right") - starts
    return span_rows(starts, lengths)


def spans_of(hashes: Int64s, wanted: Int64s) -> tuple[Int64s, Int64s]:
    """Return the first place of each wanted hash, and its last + 1; both arguments ascend."""
    many = len(hashes)
    if _DENSE * len(wanted) < many or not many:
        starts = np.searchsorted(hashes, wanted, "left")
        return starts, np.searchsorted(hashes, wanted, "right")
    is_unique = not np.any(hashes[1:] == hashes[:-1])
    if is_unique and many == len(wanted) and np.array_equal(hashes, wanted):
        starts = np.arange(many)
        return starts, starts + 1
    order = np.argsort(np.concatenate([hashes, wanted]), kind="stable")  # merges what ascends
    stops = np.flatnonzero(order >= many) - np.arange(len(wanted))
    if not is_unique:
        return np.searchsorted(hashes, wanted, "left"), stops
    return stops - (hashes[np.maximum(stops, 1) - 1] == wanted), stops


def hashes_of(batch: pa.RecordBatch) -> Int64s:
    """Return `_hash` of every row, as a view."""
    column = batch.column(batch.schema.get_field_index("_hash"))
    hashes: Int64s = column.to_numpy(zero_copy_only=True)
    return hashes


def ascending(batch: pa.RecordBatch) -> bool:
    """Return whether the rows are sorted by hash, as this engine writes them."""
    hashes = hashes_of(batch)
    return bool(np.all(hashes[:-1] <= hashes[1:]))


def _hash_ranges(meta: pq.FileMetaData) -> list[tuple[int, int]]:
    """Return least and greatest hash of every row group; without statistics, the full range."""
    at = [meta.schema.column(leaf).path for leaf in range(meta.num_columns)].index("_hash")
    ranges = []
    for group in range(meta.num_row_groups):
        found = meta.row_group(group).column(at).statistics
        is_known = found is not None and found.has_min_max
        ranges.append((found.min, found.max) if is_known else (-(2**63), 2**63 - 1))
    return ranges


@lru_cache(maxsize=256)
def wide_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose texts and bytes have offsets of 64 bits, so that any size fits."""
    return pa.schema([field.with_type(_WIDE.get(field.type, field.type)) for field in schema])


_WIDE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
