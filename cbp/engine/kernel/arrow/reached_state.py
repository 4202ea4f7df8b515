"""Kept state of all buckets, for a call that reaches records of any key.

    keys -> hashes -> the half of the buckets -> KeptCall -> records
    puts, deletions -> keys in visiting order -> KeptCall of each half -> what died, what is new

A run has one task, which owns all buckets. Signed hashes ascend only within a half of them
(`cbp.engine.state.bucket_state`), so each half is searched separately.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import chain, pairwise
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cbp.engine.columnar.arrow_types import Int64s
from cbp.engine.columnar.key_hash import hash_columns
from cbp.engine.columnar.row_codes import row_codes, stable_order
from cbp.engine.kernel.arrow.groups import author_schema
from cbp.engine.kernel.arrow.kept_state import KeptCall, KeptOperations
from cbp.engine.kernel.arrow.state_diff import take_rows
from cbp.engine.state.bucket_state import BucketState, RecordPositions
from cbp.engine.storage.external_sort import order_by_columns
from cbp.engine.storage.held_records import Room
from cbp.model.dataflow.stage import StateSpec, TranslatorSpec

Halves = tuple[BucketState, BucketState]
"""The two halves of the buckets: those with hashes of zero or more, and with negative ones."""

_T = TypeVar("_T")

_HASH = "_hash"

_SETTLED_SHARE = 8
"""If memory is scarce, puts that take at most this share (an eighth) of the room are settled at a
time."""

_FEW = 8
"""If there are at most this many groups for each wanted one, an array with a place for each group
gives the order."""


@dataclass(frozen=True, slots=True)
class ReachedOperation:
    """Records that are put into a kept state, or keys (with the second key) of deleted ones."""

    keys: pa.Table
    puts: pa.Table | None = None


@dataclass(frozen=True)
class ReachedState:
    """One kept state of a run; a `ReachedReader`. `reads` counts the author's reads."""

    spec: StateSpec
    translator: TranslatorSpec
    halves: Halves
    hash_mask: int
    room: Room
    reads: Counter[str] = field(default_factory=Counter)

    @property
    def size(self) -> int:
        """Number of records."""
        return sum(file.rows - file.dead for half in self.halves for file in half.files)

    def find(self, keys: pa.Table) -> tuple[Int64s, pa.Table]:
        """Return the rows of `keys` whose record exists, ascending, and these records."""
        many = len(self.translator.key_of(self.spec))
        second = keys.select(range(many, keys.num_columns))
        tables, places = [self._empty], [np.empty(0, np.int64)]
        for call, rows in self._calls(keys.select(range(many))):
            found, positions = call.locate(np.arange(len(rows)), second.take(pa.array(rows)))
            tables.append(self._kept(call, positions))
            places.append(rows[found])
        rows = np.concatenate(places)
        self.reads.update(keys=keys.num_rows, records=len(rows))
        order, table = stable_order(rows), pa.concat_tables(tables)
        if table.nbytes <= self.room.piece_bytes or not self.room.on_disk:
            return rows[order], table.take(pa.array(order))
        many = max(1, self.room.piece_bytes * len(order) // table.nbytes)
        pieces = (table.take(pa.array(order[at : at + many])) for at in range(0, len(order), many))
        return rows[order], self.room.keep(pieces)

    def of(self, keys: pa.Table) -> pa.Table:
        """Return all records with these keys of the stage, in any order."""
        tables = [self._empty]
        for call, rows in self._calls(keys):
            tables.append(self._kept(call, call.found(np.arange(len(rows)))[1]))
        self.reads.update(keys=keys.num_rows, records=sum(map(len, tables)))
        return pa.concat_tables(tables)

    def all(self) -> pa.Table:
        """Return all records, file by file."""
        table = self.room.keep(chain([self._empty], self._of_files()))
        self.reads.update(whole=1, records=table.num_rows)
        return table

    def _of_files(self) -> Iterator[pa.Table]:
        names = list(self.spec.schema.names)
        for state in self.halves:
            for at, file in enumerate(state.files):
                state.lookups["scan"] += 1
                rows = state.live(at, np.arange(file.rows))
                if len(rows):
                    table = state.whole(at).take(rows, names).cast(self._empty.schema)
                    state.bytes_read += table.nbytes
                    yield table

    def _kept(self, call: KeptCall, positions: RecordPositions) -> pa.Table:
        """Return records that were found; in pieces, in a mapped file, if the room is scarce."""
        rows = many = max(1, len(positions.position))
        if not self.room.has(many * call.state.row_bytes):
            rows = max(1, self.room.piece_bytes // max(1, call.state.row_bytes))
        starts = range(0, many, rows)
        return self.room.keep(call.take(positions.part(at, at + rows)) for at in starts)

    def settle(
        self,
        operations: Sequence[ReachedOperation],
        write_output: Callable[[str, list[pa.Array]], None],
        write_state: Callable[[str, pa.Table], None],
    ) -> None:
        """Apply puts and deletions, and write the changes; the last one of a key counts.

        Two halves of many records are settled in parallel. `write_output` is called only by the
        caller's thread, one half after the other. `write_state` is called by both threads, each
        for its own buckets.
        """
        operations = [one for one in operations if one.keys.num_rows]
        if not operations:
            return
        keys, hashes, parts = self._ordered(operations)

        def piece(state: BucketState, start: int, stop: int) -> list[tuple[str, list[pa.Array]]]:
            mine = keys.slice(start, stop - start)
            call = KeptCall(self.spec, self.translator, state, keys=mine, hashes=hashes[start:stop])
            some = [_piece_of(*part, self.spec.second_key, start, stop) for part in parts]
            outputs: list[tuple[str, list[pa.Array]]] = []
            nothing = np.empty(0, np.int64)
            call.settle(some, nothing, lambda *output: outputs.append(output), write_state)
            return outputs

        size = sum(one.keys.nbytes if one.puts is None else one.puts.nbytes for one in operations)
        # A second thread pays off from the same size on as for writing a file.
        pieces, beside = 1, size >= self.halves[0].cache.limits.beside_bytes
        if self.room.on_disk:  # in pieces, so that memory holds few records at a time
            pieces, beside = -(-size // max(1, self.room.most // _SETTLED_SHARE)), False
        low = int(np.searchsorted(hashes.view(np.uint64), np.uint64(1 << 63)))
        tasks = []
        for state, first, last in zip(self.halves, (0, low), (low, len(hashes)), strict=True):
            cuts = np.unique(np.linspace(first, last, pieces + 1).astype(np.int64)).tolist()
            tasks += [partial(piece, state, *span) for span in pairwise(cuts)]
        for outputs in _results(tasks, beside=beside):
            for name, columns in outputs:
                write_output(name, columns)

    def _ordered(
        self, operations: Sequence[ReachedOperation]
    ) -> tuple[pa.Table, Int64s, list[tuple[ReachedOperation, Int64s, Int64s]]]:
        """Return all keys in visiting order, their hashes, and the order of all operations.

        Each operation comes with the group of each of its rows, and its rows in order of groups.
        """
        names = list(self.translator.key_of(self.spec).names)
        given = operations[0].keys.select(names)
        if len(operations) > 1:
            given = pa.concat_tables([one.keys.select(names) for one in operations])
        keys, hashes, groups = self._in_visiting_order(given)
        numbers = np.split(groups, np.cumsum([one.keys.num_rows for one in operations])[:-1])
        orders = (_order_of(mine, len(hashes)) for mine in numbers)
        return keys, hashes, list(zip(operations, numbers, orders, strict=True))

    @property
    def _empty(self) -> pa.Table:
        return author_schema(self.spec.schema).empty_table()

    def _hashes(self, keys: pa.Table) -> Int64s:
        types = [field.type for field in self.translator.key_of(self.spec).fields]
        columns = [column.combine_chunks() for column in keys.columns]
        hashes = hash_columns(columns, types)
        return hashes if self.hash_mask == -1 else hashes & np.int64(self.hash_mask)

    def _calls(self, keys: pa.Table) -> Iterator[tuple[KeptCall, Int64s]]:
        """Yield each half's call for some keys, with the row of each of its groups in `keys`."""
        if not self.size:
            return
        hashes = self._hashes(keys)
        order = stable_order(hashes)
        below = int(np.searchsorted(hashes[order], 0))
        for state, rows in zip(self.halves, (order[below:], order[:below]), strict=True):
            if len(rows):
                mine = keys.take(pa.array(rows))
                yield (
                    KeptCall(self.spec, self.translator, state, keys=mine, hashes=hashes[rows]),
                    rows,
                )

    def _in_visiting_order(self, given: pa.Table) -> tuple[pa.Table, Int64s, Int64s]:
        """Return each key once, its hash, and the number of the key of every given row."""
        starts = _begins(given)
        if len(starts) < given.num_rows:
            keys, hashes, numbers = self._in_visiting_order(given.take(pa.array(starts)))
            return keys, hashes, np.repeat(numbers, np.diff(starts, append=given.num_rows))
        hashes = self._hashes(given)
        order = stable_order(hashes.view(np.uint64))
        ascending = hashes[order]
        if np.any(ascending[1:] == ascending[:-1]):
            return self._each_once(given)
        numbers = np.empty(len(order), np.int64)
        numbers[order] = np.arange(len(order))
        return take_rows(given, order), ascending, numbers

    def _each_once(self, given: pa.Table) -> tuple[pa.Table, Int64s, Int64s]:
        """Do what `_in_visiting_order` does, for keys that repeat, or share a hash."""
        (codes,) = row_codes([given])
        firsts = np.empty(int(codes.max(initial=-1)) + 1, np.int64)
        firsts[codes[::-1]] = np.arange(len(codes))[::-1]  # of several rows, the first one stays
        keys = given.take(pa.array(firsts))
        hashes = self._hashes(keys)
        ranks = hashes.view(np.uint64)
        order = stable_order(ranks)
        if np.any(ranks[order[1:]] == ranks[order[:-1]]):
            ranked = keys.append_column(_HASH, pa.array(ranks))
            order = order_by_columns(ranked, [_HASH, *keys.column_names])
        numbers = np.empty(len(order), np.int64)
        numbers[order] = np.arange(len(order))
        return keys.take(pa.array(order)), hashes[order], numbers[codes]


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="cbp-settle")


def _results(tasks: Sequence[Callable[[], _T]], *, beside: bool) -> Iterator[_T]:
    """Yield the results of tasks, in order; `beside`: all but the first run in another thread."""
    if not beside or len(tasks) < 2:
        yield from (task() for task in tasks)
        return
    first, *others = tasks
    futures = [_threads().submit(task) for task in others]
    try:
        yield first()
        yield from (future.result() for future in futures)
    finally:
        wait(futures)


def _begins(keys: pa.Table) -> Int64s:
    """Return where runs of equal keys begin; a run may be cut into several."""
    if any(map(pa.types.is_nested, keys.schema.types)):
        return np.arange(keys.num_rows)
    differs = np.zeros(max(0, keys.num_rows - 1), np.bool_)
    for column in keys.columns:
        values = column.combine_chunks()
        other = pc.not_equal(values[1:], values[:-1]).fill_null(True)
        differs |= other.to_numpy(zero_copy_only=False)
    return np.flatnonzero(np.append(True, differs))


def _order_of(groups: Int64s, many: int) -> Int64s:
    """Return the order that sorts groups stably; cheap if each occurs at most once."""
    if len(groups) <= many <= _FEW * len(groups):
        places = np.full(many, -1)
        places[groups] = np.arange(len(groups))
        order = places if len(groups) == many else places[places >= 0]
        if len(order) == len(groups) and order.min(initial=0) >= 0:
            return order
    return stable_order(groups)


def _piece_of(
    operation: ReachedOperation,
    groups: Int64s,
    order: Int64s,
    second_key: Sequence[str],
    start: int,
    stop: int,
) -> KeptOperations:
    """Return the part of an operation for the groups `start` to `stop`, in their order.

    `groups` has the group of each of its rows; `order` has its rows by group, then by arrival.
    """
    first, last = np.searchsorted(groups, [start, stop], sorter=order).tolist()
    rows = order[first:last]
    own = groups[rows]
    puts = None if operation.puts is None else _some_rows(operation.puts, rows)
    names = list(second_key)
    second = _some_rows(operation.keys.select(names), rows) if puts is None else puts.select(names)
    return KeptOperations(second, own - start if start else own, puts)


def _some_rows(table: pa.Table, rows: Int64s) -> pa.Table:
    """Return some rows, as a view if they are adjacent."""
    many = len(rows)
    if many and rows[-1] - rows[0] == many - 1 and np.all(np.diff(rows) == 1):
        return table.slice(int(rows[0]), many)
    return table.take(pa.array(rows))
