"""Net changes of the records of a view in a loop, over all supersteps.

    changes of supersteps -> those that cancelled out are dropped -> net changes, in visiting order

Many changes are cut by the hashes of their keys, which all changes of a record share. The parts are
processed one after the other, so they need not fit in memory together. Groups are visited by
ascending hash, so the order is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import Int64s, Mask
from cbp.engine.columnar.key_hash import hash_columns
from cbp.engine.columnar.row_codes import row_codes, stable_order
from cbp.engine.kernel.view_changes import ViewChanges
from cbp.engine.storage.external_sort import order_by_columns
from cbp.engine.storage.file_sizes import halves
from cbp.engine.storage.held_records import HeldRecords, Room
from cbp.model.dataflow.stage import StateSpec
from cbp.model.flow.schema import Schema
from cbp.model.flow.signed_changes import CHANGE_COLUMNS, SIGN

_HASH = "_hash"

_TOGETHER_SHARE = 8
"""If memory is scarce, changes that take at most this share (an eighth) of the room are processed
together."""

_PARTS_MAX = 63


@dataclass(frozen=True)
class NetChanges:
    """The changes of one view of a loop; `key` is the stage's key, by its names in the view."""

    view: StateSpec
    key: Schema
    hash_mask: int
    room: Room

    def drop_cancelled(self, held: HeldRecords) -> None:
        """Drop the held changes that cancel out."""
        for changes in self._parts(held):
            held.add(changes.take(pa.array(_rows_that_count(changes))))

    def write(self, held: HeldRecords, write_output: Callable[[str, list[pa.Array]], None]) -> None:
        """Write the net changes, and hold none afterwards."""
        for changes in self._parts(held):
            self._write(changes, ViewChanges(self.view, write_output))

    def _parts(self, given: HeldRecords) -> Iterator[pa.Table]:
        """Take the changes, and yield them by ascending hash; changes of one key stay in order."""
        size, scarce, tables = given.nbytes, self.room.on_disk > 0, given.take()
        most = max(self.room.piece_bytes, self.room.most // _TOGETHER_SHARE)
        if size <= most or not scarce:
            yield from [pa.concat_tables(tables)] if tables else []
            return
        bits = min(_PARTS_MAX, -(-size // most)).bit_length()
        held = [HeldRecords(self.room) for _ in range(1 << bits)]
        try:
            for table in tables:
                for piece in halves(
                    table, rows_max=table.num_rows, bytes_max=self.room.piece_bytes
                ):
                    self._cut(piece, held, bits)
            for one in held:
                if one.tables:
                    yield pa.concat_tables(one.take())
        finally:
            for one in held:
                one.take()
                self.room.holders.remove(one)

    def _cut(self, changes: pa.Table, held: Sequence[HeldRecords], bits: int) -> None:
        keys = changes.select(list(self.key.names)).combine_chunks()
        parts = (self._hashes(keys).view(np.uint64) >> np.uint64(64 - bits)).astype(np.int64)
        order = stable_order(parts)
        edges = np.searchsorted(parts[order], np.arange(len(held) + 1)).tolist()
        for part, one in enumerate(held):
            if edges[part + 1] > edges[part]:
                one.add(changes.take(pa.array(order[edges[part] : edges[part + 1]])))

    def _write(self, changes: pa.Table, changed: ViewChanges) -> None:
        records = changes.select(list(self.view.schema.names))
        signs = changes.column(SIGN).to_numpy().astype(np.int64)
        (codes,) = row_codes([records])
        sums = np.bincount(codes, weights=signs).astype(np.int64)
        died, born = _rows_left(codes, signs, -sums), _rows_left(codes, -signs, sums)
        rows = np.concatenate([died, born])
        if not len(rows):
            return
        left = records.take(pa.array(rows))
        groups = self._visits(left)
        gone, came = left.slice(0, len(died)), left.slice(len(died))
        changed.write(gone, groups[: len(died)], came, groups[len(died) :])

    def _visits(self, records: pa.Table) -> Int64s:
        """Return a number for the group of each record, ascending in visiting order."""
        keys = records.select(list(self.key.names)).combine_chunks()
        hashes = self._hashes(keys)
        keys = keys.append_column(_HASH, pa.array(hashes.view(np.uint64)))
        order = order_by_columns(keys, [_HASH, *self.key.names])
        (codes,) = row_codes([keys])
        numbers = np.empty(len(order), np.int64)
        numbers[order] = np.cumsum(np.diff(codes[order], prepend=codes[order[:1]]) != 0)
        return numbers

    def _hashes(self, keys: pa.Table) -> Int64s:
        arrays = [column.chunk(0) for column in keys.columns]
        return hash_columns(arrays, [f.type for f in self.key.fields]) & np.int64(self.hash_mask)


def _rows_left(codes: Int64s, signs: Int64s, counts: Int64s) -> Int64s:
    """Return each record's first row with a negative sign, repeated `counts` times.

    Equal records have one code; a record whose count is not positive is left out.
    """
    rows = np.flatnonzero(signs < 0)
    names, firsts = np.unique(codes[rows], return_index=True)
    times = np.maximum(counts[names], 0)
    left: Int64s = np.repeat(rows[firsts], times)
    return left


def _rows_that_count(changes: pa.Table) -> Int64s:
    """Return fewer rows, ascending, with the same net effect on a view as all of its changes.

    A record that was inserted and then deleted is left out. One that was deleted first was there
    before the loop: if it was inserted again, both rows stay, since its earlier spelling counts
    (0.0 and -0.0 are equal).
    """
    (codes,) = row_codes(
        [changes.select([n for n in changes.column_names if n not in CHANGE_COLUMNS])]
    )
    signs = changes.column(SIGN).to_numpy().astype(np.int64)
    sums = np.bincount(codes, weights=signs).astype(np.int64)
    went, came = (_first_rows(codes, rows, len(sums)) for rows in (signs < 0, signs > 0))
    both = (went < came) & (came < len(codes))
    rows = [
        np.repeat(went, np.maximum(-sums, 0) + both),
        np.repeat(came, np.maximum(sums, 0) + both),
    ]
    return np.sort(np.concatenate(rows))


def _first_rows(codes: Int64s, chosen: Mask, many: int) -> Int64s:
    first, rows = np.full(many, len(codes)), np.flatnonzero(chosen)[::-1]
    first[codes[rows]] = rows
    return first
