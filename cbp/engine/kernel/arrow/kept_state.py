"""Kept state of a call of many groups: found by key, put and deleted by tables.

    keys -> groups, second keys -> binary searches in the ranges of their groups -> positions

The counterpart of `cbp.engine.kernel.state_settlement`, without any record in Python. It reads only
those records of a group that the author gets, puts or deletes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import Int64s, with_types
from cbp.engine.columnar.groups import positive_zeros, span_rows
from cbp.engine.columnar.row_codes import row_codes, stable_order
from cbp.engine.kernel.arrow.groups import author_schema, group_numbers
from cbp.engine.kernel.arrow.kept_tables import refuse_foreign_key
from cbp.engine.kernel.arrow.state_diff import rows_differ, take_rows
from cbp.engine.kernel.arrow.type_check import narrow
from cbp.engine.kernel.view_changes import ViewChanges
from cbp.engine.state.bucket_state import BucketState, RecordPositions
from cbp.engine.state.lookup import spans_of
from cbp.engine.state.run_files import state_file_schema
from cbp.engine.state.second_key_order import SecondOrder, ascend
from cbp.engine.storage.external_sort import order_by_columns
from cbp.model.dataflow.stage import StateSpec, TranslatorSpec
from cbp.model.flow.schema import Schema

_GROUP = "_group"


@dataclass(frozen=True, slots=True)
class KeptOperations:
    """Puts of one emission into a kept state, by second key; deletions if there are no `puts`."""

    second: pa.Table
    groups: Int64s
    puts: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class KeptTableChanges:
    """What the groups of a call changed in one kept state; new records come in order."""

    died: RecordPositions
    died_groups: Int64s
    born: pa.Table
    born_groups: Int64s


@dataclass(frozen=True, slots=True)
class FileRanges:
    """The places of the rows of some neighboring groups, from `first` on, in file number `at`.

    Places refer to the file's order; the group `first + g` has `starts[g]` to `stops[g] - 1`.
    """

    at: int
    order: SecondOrder
    first: int
    starts: Int64s
    stops: Int64s

    def of(self, groups: Int64s, *, ascends: bool) -> tuple[Int64s, Int64s, Int64s]:
        """Return which of some groups have rows here, and where those of each begin and end."""
        last = self.first + len(self.starts)
        if ascends:
            inner = np.arange(*groups.searchsorted([self.first, last]))
        else:
            inner = np.flatnonzero((groups >= self.first) & (groups < last))
        mine = groups[inner] - self.first
        starts, stops = self.starts[mine], self.stops[mine]
        hit = np.flatnonzero(stops > starts)
        return inner[hit], starts[hit], stops[hit]


class KeptCall:
    """One kept state of a call."""

    def __init__(
        self,
        spec: StateSpec,
        translator: TranslatorSpec,
        state: BucketState,
        *,
        keys: pa.Table,
        hashes: Int64s,
    ) -> None:
        self.spec, self.state, self.keys, self.hashes = spec, state, keys, hashes
        self._key = translator.key_of(spec)
        self._second = spec.schema.select(spec.second_key)
        self._types = author_schema(spec.schema)

    @cached_property
    def ranges(self) -> list[FileRanges]:
        """The places of the groups' rows in each file that has some."""
        state, ranges = self.state, []
        columns = Schema((*self._key.fields, *self._second.fields))
        keys = [column.combine_chunks() for column in self.keys.columns]
        for at, first, last in state.files_of(self.hashes):
            file = state.whole(at)
            state.lookups["index"] += 1
            starts, stops = spans_of(file.hashes, state.as_filed(at, self.hashes[first:last]))
            hit = np.flatnonzero(stops > starts)
            if len(hit):
                places = starts[hit], stops[hit]
                order = file.second_order(columns, ranges=places)
                some = keys if len(hit) == len(self.hashes) else _taken(keys, hit + first)
                starts[hit], stops[hit] = order.spans(some, *places)
                ranges.append(FileRanges(at, order, first, starts, stops))
        return ranges

    def locate(self, groups: Int64s, second: pa.Table) -> tuple[Int64s, RecordPositions]:
        """Return the rows of `second` whose record exists, ascending, and their places."""
        wanted = [column.combine_chunks() for column in second.columns]
        parts = []
        for one, some, starts, stops in self._hits(groups):
            values = wanted if len(some) == len(groups) else _taken(wanted, some)
            spans = one.order.spans(values, starts, stops, first=len(self._key.fields))
            parts.append(self._live(one.at, one.order, some, *spans))
        return self._joined(parts, groups)

    def _hits(self, groups: Int64s) -> Iterator[tuple[FileRanges, Int64s, Int64s, Int64s]]:
        """Yield each file with rows of some groups: which groups, and the places of each group."""
        ascends = bool(np.all(groups[1:] >= groups[:-1]))
        for one in self.ranges:
            some, starts, stops = one.of(groups, ascends=ascends)
            if len(some):
                yield one, some, starts, stops

    def every(self, groups: Int64s) -> tuple[Int64s, RecordPositions]:
        """Return all live records of some groups, in order, each with its group."""
        owners, positions = self.found(groups)
        if np.any(positions.file[1:] != positions.file[:-1]):
            second = self.take(positions, self.spec.second_key)
            order = _in_order(second, owners)
            return owners[order], positions.at(order)
        return owners, positions

    def found(self, groups: Int64s) -> tuple[Int64s, RecordPositions]:
        """Return all live records of some groups, group by group, each with its group."""
        parts = [
            self._live(one.at, one.order, groups[some], *places)
            for one, some, *places in self._hits(groups)
        ]
        return self._joined(parts, np.arange(len(self.hashes)))

    def tables(self, groups: Int64s, *, rows_max: int) -> Iterator[pa.Table]:
        """Yield all records of some groups, in any order, some at a time."""
        for one, some, *places in self._hits(groups):
            owners, files, rows = self._live(one.at, one.order, groups[some], *places)
            positions = RecordPositions(self.hashes[owners], files, rows)
            for start in range(0, len(rows), rows_max):
                yield self.take(positions.part(start, start + rows_max))

    def take(self, positions: RecordPositions, names: Sequence[str] = ()) -> pa.Table:
        """Return some records as an author sees them; all columns by default."""
        columns = list(names or self.spec.schema.names)
        types = pa.schema([self._types.field(name) for name in columns])
        if not len(positions.position):
            return types.empty_table()
        return with_types(self.state.take(positions, columns), types)

    def changes(self, operations: Sequence[KeptOperations], dropped: Int64s) -> KeptTableChanges:
        """Return the changes made by puts and deletions; a record put unchanged is not a change.

        The last operation of a key counts; `dropped` groups lose all records.
        """
        if (alone := self._only_new(operations)) is not None and not len(dropped):
            nothing = np.empty(0, np.int64)
            died = RecordPositions(nothing, nothing, nothing)
            return KeptTableChanges(died, nothing, alone.puts, alone.groups)
        last, puts, is_ordered = _last_of_each(operations, self._types)
        groups, second, rows = last
        found, before = self.locate(groups, second)
        old = np.full(len(groups), -1)
        old[found] = np.arange(len(found))
        again = np.flatnonzero((old >= 0) & (rows >= 0))
        same = np.zeros(len(groups), np.bool_)
        if len(again):
            key = (*self._key.names, *self._second.names)
            rest = [name for name in self._types.names if name not in key]
            same[again] = True
            if rest:
                left = self.take(before.at(old[again]), rest)
                right = puts.select(rest).take(pa.array(rows[again]))
                same[again] = ~rows_differ(left, right)
        gone = np.flatnonzero((old >= 0) & ~same)
        owners, positions = self.every(dropped)
        died = RecordPositions.concat([before.at(old[gone]), positions])
        died_groups = np.concatenate([groups[gone], owners])
        by_group = stable_order(died_groups)
        new = np.flatnonzero((rows >= 0) & ~same)
        order = new if is_ordered else new[_in_order(take_rows(second, new), groups[new])]
        return KeptTableChanges(
            died.at(by_group), died_groups[by_group], take_rows(puts, rows[order]), groups[order]
        )

    def settle(
        self,
        operations: Sequence[KeptOperations],
        dropped: Int64s,
        write_output: Callable[[str, list[pa.Array]], None],
        write_state: Callable[[str, pa.Table], None],
    ) -> None:
        """Write the changes that puts and deletions make (`changes`), and the changes of a view."""
        changes = self.changes(operations, dropped)
        self.state.kill(changes.died)
        if self.spec.changes:
            gone, view = self.take(changes.died), ViewChanges(self.spec, write_output)
            view.write(gone, changes.died_groups, changes.born, changes.born_groups)
        write_rows(write_state, self.spec, changes.born, self.hashes[changes.born_groups])

    def _only_new(self, operations: Sequence[KeptOperations]) -> KeptOperations | None:
        """Return the only operation if it puts records in order, each once, into empty groups."""
        some = [one for one in operations if len(one.groups)]
        if len(some) != 1 or some[0].puts is None or self.ranges:
            return None
        (one,) = some
        ascends = bool(np.all(one.groups[1:] >= one.groups[:-1]))
        return one if ascends and _ascend_strictly(one.groups, one.second) else None

    def _live(
        self, at: int, order: SecondOrder, numbers: Int64s, starts: Int64s, stops: Int64s
    ) -> tuple[Int64s, Int64s, Int64s]:
        """Return the live rows in ranges of a file: number of the range, index of the file, row."""
        sizes = stops - starts
        rows = order.rows_at(span_rows(starts, sizes))
        live = self.state.is_live(at, rows)
        return np.repeat(numbers, sizes)[live], np.full(int(live.sum()), at), rows[live]

    def _joined(
        self, parts: Sequence[tuple[Int64s, Int64s, Int64s]], groups: Int64s
    ) -> tuple[Int64s, RecordPositions]:
        empty = np.empty(0, np.int64)
        numbers, files, rows = (
            (np.concatenate([empty, *some]) for some in zip(*parts, strict=True))
            if parts
            else (empty, empty, empty)
        )
        order = stable_order(numbers)
        numbers = numbers[order]
        hashes = self.hashes[groups[numbers]]
        return numbers, RecordPositions(hashes, files[order], rows[order])


def write_rows(
    write_state: Callable[[str, pa.Table], None], state: StateSpec, born: pa.Table, hashes: Int64s
) -> None:
    """Write new records of a state, as tables in the schema of a run file."""
    if len(hashes):
        table = born.append_column("_hash", pa.array(hashes, pa.int64()))
        for rows in narrow(table, state_file_schema(state)):
            write_state(state.name, rows)


@dataclass(frozen=True, slots=True)
class CalledRecords:
    """The records of the groups whose author is called; a `KeptTableReader`."""

    kept: KeptCall
    called: Int64s

    def get(self, keys: pa.Table) -> pa.Table:
        """Return the records with these keys, in their order."""
        kept = self.kept
        own = kept.keys.take(pa.array(self.called))
        many = own.num_columns
        numbers = group_numbers(own, keys.select(range(many)))
        refuse_foreign_key(kept.spec.name, keys, numbers)
        second = keys.select(range(many, keys.num_columns))
        return kept.take(kept.locate(self.called[numbers], second)[1])

    def all(self) -> pa.Table:
        """Return all records, group by group, in order."""
        return self.kept.take(self.kept.every(self.called)[1])


def _last_of_each(
    operations: Sequence[KeptOperations], types: pa.Schema
) -> tuple[tuple[Int64s, pa.Table, Int64s], pa.Table, bool]:
    """Return the last operation of each key, the records that are put, and whether all are ordered.

    An operation is a group, a second key and the row of its record (-1: deleted).
    """
    groups = np.concatenate([np.empty(0, np.int64), *(one.groups for one in operations)])
    given = [one.puts for one in operations if one.puts is not None]
    puts = pa.concat_tables([types.empty_table(), *given])
    rows, start = [np.empty(0, np.int64)], 0
    for one in operations:
        size = len(one.groups)
        is_put = one.puts is not None
        rows.append(np.arange(start, start + size) if is_put else np.full(size, -1))
        start += size if is_put else 0
    if not operations:
        return (groups, types.empty_table(), groups), puts, True
    second = pa.concat_tables([one.second for one in operations])
    last = stable_order(groups)
    ordered = take_rows(second, last)
    is_ordered = _ascend_strictly(groups[last], ordered)
    if not is_ordered:
        (codes,) = row_codes([second], [groups])
        _, firsts = np.unique(codes[::-1], return_index=True)
        last = np.sort(len(codes) - 1 - firsts)
        ordered = second.take(pa.array(last))
    return (groups[last], ordered, np.concatenate(rows)[last]), puts, is_ordered


def _in_order(second: pa.Table, groups: Int64s) -> Int64s:
    order = stable_order(groups)
    if _ascend_strictly(groups[order], take_rows(second, order)):
        return order
    table = pa.table({_GROUP: groups})
    for name, column in zip(second.column_names, positive_zeros(second).columns, strict=True):
        table = table.append_column(name, column)
    return order_by_columns(table, [_GROUP, *second.column_names])


def _taken(columns: Sequence[pa.Array], rows: Int64s) -> list[pa.Array]:
    return [column.take(pa.array(rows)) for column in columns]


def _ascend_strictly(groups: Int64s, second: pa.Table) -> bool:
    """Return whether the records of each group come in the order of their keys, each once."""
    columns = [column.combine_chunks() for column in second.columns]
    return ascend(groups, columns, strictly=True)
