"""Rows of one data file: found by hash, taken by position.

A position is the physical row in the Parquet file, whatever order a copy has, so that it
means the same in deletion vectors. `IndexedFile` holds all rows; `RowGroups` reads only
those row groups of the Parquet file that can hold what is asked for.

Both find the same rows for the same hashes, in ascending position within ascending hash
(tests/cbp/engine/state/test_lookup.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from cbp.engine.spans import span_rows
from cbp.engine.state.access import choose_search
from cbp.engine.state.sizes import bytes_unpacked, rows_at_a_time
from cbp.engine.state.vectors import live_in, rows_of
from cbp.errors import InvariantError

__all__ = ["IndexedFile", "RowGroups", "StateRows", "ascending", "hashes_of", "matches"]

Int64s = npt.NDArray[np.int64]


class StateRows(Protocol):
    """What a look-up needs of a data file."""

    @property
    def memory(self) -> int:
        """Bytes of all its rows, not packed."""
        ...

    def find(self, wanted: Int64s | None) -> tuple[Int64s, Int64s]:
        """Return positions and hashes of the rows with these hashes, by (hash, position).

        Args:
            wanted: Ascending, unique; `None`: every row.
        """
        ...

    def take(self, positions: Int64s, columns: Sequence[str]) -> pa.Table:
        """Return some rows (at least one) in the given order; a view where they adjoin."""
        ...

    def way(self, wanted: Int64s | None) -> str:
        """Tell how `find` would search: `index` or `scan`."""
        ...

    def repeated(self, stride: int, wanted: Int64s | None) -> set[int]:
        """Return hashes that repeat; each that has `2 * stride` rows is among them."""
        ...


class IndexedFile:
    """All rows of one data file, in memory or mapped.

    Attributes:
        batch: All columns, all rows, in physical order.
        hashes: `_hash` of every row, ascending.
    """

    def __init__(self, batch: pa.RecordBatch, *, sorted_: bool = True) -> None:
        self.batch = batch
        self.hashes = hashes_of(batch)
        self._order: Int64s | None = None
        self._repeated: dict[int, set[int]] = {}
        if not sorted_:
            self._order = np.argsort(self.hashes, kind="stable")
            self.hashes = self.hashes[self._order]

    @cached_property
    def memory(self) -> int:
        """Bytes of all rows."""
        return int(self.batch.nbytes)

    @property
    def in_order(self) -> bool:
        """Whether the rows lie in the order of their hashes."""
        return self._order is None

    def find(self, wanted: Int64s | None) -> tuple[Int64s, Int64s]:
        """Return positions and hashes; see `StateRows`."""
        if wanted is None:
            places, hashes = np.arange(len(self.hashes)), self.hashes
        else:
            places = matches(self.hashes, wanted)
            hashes = self.hashes[places]
        return (places if self._order is None else self._order[places]), hashes

    def take(self, positions: Int64s, columns: Sequence[str]) -> pa.Table:
        """Return some rows; see `StateRows`."""
        batch = self.batch.select(list(columns))
        first, many = int(positions[0]), len(positions)
        if positions[-1] - first + 1 == many and np.all(np.diff(positions) == 1):
            return pa.Table.from_batches([batch.slice(first, many)])
        return pa.Table.from_batches([batch.take(pa.array(positions))])

    def at_a_time(self, columns: Sequence[str]) -> int:
        """Return how many rows to read at a time, so that memory stays bounded."""
        size = self.batch.select(list(columns)).nbytes
        return rows_at_a_time(rows=self.batch.num_rows, memory=size)

    def repeated(self, stride: int, wanted: Int64s | None = None) -> set[int]:
        """Return hashes that repeat; see `StateRows`. Rows out of order are in no range."""
        if self._order is not None:
            return set()
        stride = 1 << (stride.bit_length() - 1)  # so that few strides are ever asked for
        if stride not in self._repeated:
            samples = self.hashes[::stride]
            self._repeated[stride] = set(samples[1:][samples[1:] == samples[:-1]].tolist())
        return self._repeated[stride]

    def span(self, hash_: int) -> tuple[int, int]:
        """Return the first row of a hash, and the one behind its last."""
        first, last = (int(np.searchsorted(self.hashes, hash_, side)) for side in ("left", "right"))
        return first, last

    def live(self, start: int, stop: int, dead: BitMap64) -> Int64s:
        """Return the live rows among those at the places `start` to `stop` by hash."""
        if self._order is None:
            return live_in(dead, start, stop)
        rows = self._order[start:stop]
        return rows[~np.isin(rows, rows_of(dead))]

    def others(self, gone: Int64s) -> Int64s:
        """Return all hashes but some (ascending, unique); each as often as it is there."""
        spans = [self.span(hash_) for hash_ in gone.tolist()]
        starts = [0, *(last for _, last in spans)]
        stops = [*(first for first, _ in spans), len(self.hashes)]
        kept = [self.hashes[a:b] for a, b in zip(starts, stops, strict=True)]
        return np.concatenate(kept)

    def way(self, wanted: Int64s | None) -> str:
        """Tell how `find` would search."""
        if wanted is None:
            return "scan"
        return choose_search(rows=len(self.hashes), wanted=len(wanted))


class RowGroups:
    """A Parquet file of which only some row groups are read; not thread-safe.

    Args:
        file: Open; its row groups have statistics of `_hash`, or are all read.
    """

    def __init__(self, file: pq.ParquetFile) -> None:
        self._file = file
        meta = file.metadata
        counts = [meta.row_group(g).num_rows for g in range(meta.num_row_groups)]
        self._starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        self._ranges = _hash_ranges(meta)
        self._hashes: dict[int, IndexedFile] = {}

    @property
    def memory(self) -> int:
        """Bytes of all rows, as the file tells them."""
        return bytes_unpacked(self._file.metadata)

    def touched(self, wanted: Int64s) -> list[int]:
        """Return the row groups that can hold these hashes (ascending)."""
        return [
            group
            for group, (low, high) in enumerate(self._ranges)
            if np.searchsorted(wanted, low, "left") < np.searchsorted(wanted, high, "right")
        ]

    def rows(self, groups: Sequence[int]) -> int:
        """Return how many rows some row groups have."""
        return int(sum(self._starts[group + 1] - self._starts[group] for group in groups))

    def find(self, wanted: Int64s | None) -> tuple[Int64s, Int64s]:
        """Return positions and hashes; see `StateRows`."""
        groups = range(len(self._ranges)) if wanted is None else self.touched(wanted)
        positions, hashes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for group in groups:
            found, values = self._hashes_of(group).find(wanted)
            positions.append(found + self._starts[group])
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
        table = _read_groups(self._file, needed.tolist(), list(columns))
        return table.take(pa.array(positions - offsets[groups]))

    def repeated(self, stride: int, wanted: Int64s | None) -> set[int]:
        """Return hashes that repeat; see `StateRows`."""
        groups = range(len(self._ranges)) if wanted is None else self.touched(wanted)
        stride = max(1, stride // 2)  # a run may lie in two groups of rows
        return {hash_ for group in groups for hash_ in self._hashes_of(group).repeated(stride)}

    def way(self, wanted: Int64s | None) -> str:
        """Tell how `find` would search."""
        return "scan"

    def _hashes_of(self, group: int) -> IndexedFile:
        if group not in self._hashes:
            (batch,) = _read_groups(self._file, [group], ["_hash"]).combine_chunks().to_batches()
            self._hashes[group] = IndexedFile(batch, sorted_=ascending(batch))
        return self._hashes[group]


def matches(hashes: Int64s, wanted: Int64s) -> Int64s:
    """Return where `hashes` (ascending) has one of `wanted` (ascending, unique); ascending."""
    if not len(hashes) or not len(wanted):
        return np.empty(0, np.int64)
    if choose_search(rows=len(hashes), wanted=len(wanted)) == "scan":
        nearest = np.minimum(np.searchsorted(wanted, hashes, "left"), len(wanted) - 1)
        return np.flatnonzero(wanted[nearest] == hashes)
    left = np.searchsorted(hashes, wanted, "left")
    hit = hashes[np.minimum(left, len(hashes) - 1)] == wanted
    starts, found = left[hit], wanted[hit]
    # Most keys have one record in a file: only where the next row has the hash too, look on.
    follower = np.minimum(starts + 1, len(hashes) - 1)
    if not np.any((hashes[follower] == found) & (follower > starts)):
        unique: Int64s = starts
        return unique
    lengths = np.searchsorted(hashes, found, "right") - starts
    return span_rows(starts, lengths)


def hashes_of(batch: pa.RecordBatch) -> Int64s:
    """Return `_hash` of every row; a view."""
    column = batch.column(batch.schema.get_field_index("_hash"))
    hashes: Int64s = column.to_numpy(zero_copy_only=True)
    return hashes


def ascending(batch: pa.RecordBatch) -> bool:
    """Tell whether the rows are sorted by hash, as this engine writes them."""
    hashes = hashes_of(batch)
    return bool(np.all(hashes[:-1] <= hashes[1:]))


def _hash_ranges(meta: pq.FileMetaData) -> list[tuple[int, int]]:
    """Return least and greatest hash of every row group; where it is not told, all there are."""
    leaves = [meta.schema.column(at).path for at in range(meta.num_columns)]
    at = leaves.index("_hash")
    ranges = []
    for group in range(meta.num_row_groups):
        found = meta.row_group(group).column(at).statistics
        told = found is not None and found.has_min_max
        ranges.append((found.min, found.max) if told else (-(2**63), 2**63 - 1))
    return ranges


def _read_groups(file: pq.ParquetFile, groups: list[int], columns: list[str]) -> pa.Table:
    try:
        table = file.read_row_groups(groups, columns=columns, use_threads=False)
    except (OSError, pa.ArrowException) as exc:
        message = f"a data file is damaged: {exc}"
        raise InvariantError(message) from exc
    wide = pa.schema([f.with_type(_WIDE.get(f.type, f.type)) for f in table.schema])
    return table.select(columns).cast(wide)


_WIDE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
