"""The state of one large group, which does not fit in memory: its diff, and its view's changes.

The diff: records that the author has read and records that were emitted meanwhile cancel out
chunk by chunk (`cbp.engine.state.multiset_difference`).

Changes of a view: records that died or were born are spilled as the diff finds them, in any order;
at the end they are sorted on disk and written as changes. The keys of emitted records are spilled
too, since a key that was emitted twice is found only among all of them; a bag has no keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import Int64s
from cbp.engine.columnar.groups import positive_zeros
from cbp.engine.columnar.row_codes import first_twice, row_codes
from cbp.engine.columnar.values import Row
from cbp.engine.kernel.arrow.groups import author_schema
from cbp.engine.kernel.group_batch import Source
from cbp.engine.kernel.view_changes import SIDE, ViewChanges, second_keys
from cbp.engine.state.bucket_state import BucketState, RecordPositions
from cbp.engine.state.multiset_difference import Difference
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.external_sort import sorted_tables
from cbp.engine.storage.spill_files import BatchFile


class LargeView:
    """Collects the changes of one group's records; call `finish` once, then `close`."""

    def __init__(self, changes: ViewChanges, state: BucketState, limits: EngineLimits) -> None:
        self._changes, self._state, self._limits = changes, state, limits
        view = changes.view
        self._schema = author_schema(view.schema).append(pa.field(SIDE, pa.int64()))
        self._records = BatchFile(self._schema)
        keys = author_schema(view.schema.select(view.second_key))
        self._emitted = BatchFile(keys) if view.second_key else None
        self._order = [*(view.order if view.bag else view.second_key), SIDE]
        self._rows_emitted = 0

    def emitted(self, rows: Sequence[Row]) -> None:
        """Note the keys of records that the author emitted."""
        self._rows_emitted += len(rows)
        if self._emitted is not None:
            self._emitted.write(second_keys(self._changes.view, rows))

    def died(self, positions: RecordPositions) -> None:
        """Add the places of removed records."""
        step = self._limits.large_group_rows
        for start in range(0, len(positions.position), step):
            part = positions.part(start, start + step)
            self._take(self._state.take(part, self._changes.names), 0)

    def born(self, columns: Sequence[pa.Array]) -> None:
        """Add the columns of new records."""
        self._take(pa.table(list(columns), names=self._changes.names), 1)

    def _take(self, table: pa.Table, side: int) -> None:
        if self._changes.view.bag:
            table = positive_zeros(table)
        sides = pa.array(np.full(table.num_rows, side, np.int64))
        self._records.write(table.append_column(SIDE, sides).cast(self._schema))

    def finish(self) -> None:
        """Write the changes; a key that was emitted twice is a `ValueError`."""
        if self._emits_twice():
            message = f"view {self._changes.view.name!r}: two emitted records have the same key"
            raise ValueError(message)  # the caller calls the group again, to find the line
        tables = sorted_tables(_read(self._records), self._order, limits=self._limits)
        bag = self._changes.view.bag
        for table in _surplus(tables, self._limits) if bag else _pairs_whole(tables):
            sides = table.column(SIDE).to_numpy()
            groups = np.zeros(len(sides), np.int64)
            self._changes.write_ordered(table.drop_columns([SIDE]), groups, sides)

    def close(self) -> None:
        """Remove the files."""
        self._records.close()
        if self._emitted is not None:
            self._emitted.close()

    def _emits_twice(self) -> bool:
        if self._emitted is None:
            return self._rows_emitted > 1 and not self._changes.view.bag
        last: pa.Table | None = None
        names = list(self._changes.view.second_key)
        for table in sorted_tables(_read(self._emitted), names, limits=self._limits):
            both = table if last is None else pa.concat_tables([last, table])
            if first_twice(both, np.zeros(both.num_rows, np.int64)) is not None:
                return True
            last = table.slice(table.num_rows - 1)
        return False


def _read(file: BatchFile) -> Iterator[pa.Table]:
    reader = file.reader()
    for number in range(reader.num_record_batches):
        yield pa.Table.from_batches([reader.get_batch(number)])


def _surplus(tables: Iterable[pa.Table], limits: EngineLimits) -> Iterator[pa.Table]:
    """Yield the surplus of either side, record by record; equal records are adjacent."""
    held: pa.Table | None = None
    surplus = 0
    for table in tables:
        signs = 2 * table.column(SIDE).to_numpy() - 1
        rows = table.drop_columns([SIDE])
        if held is not None:
            rows, signs = pa.concat_tables([held, rows]), np.append([surplus], signs)
        (codes,) = row_codes([rows])
        firsts = np.flatnonzero(np.diff(codes, prepend=-1))
        sums = np.add.reduceat(signs, firsts)
        yield from _repeated(rows, firsts[:-1], sums[:-1], limits)
        # More rows that equal the last one may follow.
        held, surplus = rows.slice(int(firsts[-1]), 1), int(sums[-1])
    if held is not None:
        yield from _repeated(held, np.zeros(1, np.int64), np.array([surplus]), limits)


def _repeated(rows: pa.Table, at: Int64s, sums: Int64s, limits: EngineLimits) -> Iterator[pa.Table]:
    """Yield rows, each as often as its sum requires, with its side, a part at a time."""
    chosen, sides = np.repeat(at, abs(sums)), np.repeat((sums > 0).astype(np.int64), abs(sums))
    for start in range(0, len(chosen), limits.large_group_rows):
        part = slice(start, start + limits.large_group_rows)
        table = rows.take(pa.array(chosen[part]))
        yield table.append_column(SIDE, pa.array(sides[part]))


def _pairs_whole(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows of tables, cut so that no table ends between a removed record and the next."""
    held: pa.Table | None = None
    for table in chain(tables, [None]):
        whole = held if table is None else table
        if whole is None:
            return
        if table is not None and held is not None:
            whole = pa.concat_tables([held, table])
        held = None
        if table is not None and whole.column(SIDE)[whole.num_rows - 1].as_py() == 0:
            held, whole = whole.slice(whole.num_rows - 1), whole.slice(0, whole.num_rows - 1)
        if whole.num_rows:
            yield whole


class LargeState:
    """One state of one large group; iterate `read` at most once, call `finish` at the end.

    The author's records are appended to `emitted`, which `drain` empties. `view` collects the
    changes of the records, if the state is a view.
    """

    def __init__(
        self,
        source: Source,
        emitted: list[Row],
        *,
        died: Callable[[RecordPositions], None],
        born: Callable[[list[Row]], None],
        limits: EngineLimits,
        copies: Callable[[list[Row]], list[Row]] | None = None,
        rounder: Callable[[list[Row]], list[Row]] | None = None,
        view: LargeView | None = None,
    ) -> None:
        self._source, self._emitted, self._died = source, emitted, died
        self._view, self._rounder = view, rounder
        self._copies = copies or (lambda rows: rows)
        self._difference = Difference(died, born, limits)
        self.has_emitted = False
        self._tables: Iterator[tuple[pa.Table, RecordPositions]] | None = None
        if source.stream is None:
            assert source.origin is not None, "state records have a location"
            self._difference.read(source.rows, source.origin)
            self._difference.complete()

    def __enter__(self) -> LargeState:
        return self

    def __exit__(self, *_: object) -> None:
        self._difference.__exit__()
        if self._view is not None:
            self._view.close()

    def read(self, drain: Callable[[], None]) -> Iterator[Row]:
        """Yield the records; call `drain` after each chunk, once its records were emitted again."""
        stream = self._source.stream
        if stream is None:
            yield from self._copies(self._source.rows)
            return
        self._tables = stream.tables()
        for table, positions in self._tables:
            rows = stream.decoded(table)
            self._difference.read(rows, positions)
            yield from self._copies(rows)
            drain()
        self._difference.complete()

    def drain(self) -> None:
        """Compare the records that were emitted so far."""
        if self._emitted:
            self.has_emitted = True
            rows = self._emitted[:]
            self._emitted.clear()
            if self._rounder is not None:
                rows = self._rounder(rows)
            if self._view is not None:
                self._view.emitted(rows)
            self._difference.emit(rows)

    def finish(self) -> None:
        """Compare all remaining records, including those that the author did not read."""
        self.drain()
        stream = self._source.stream
        if stream is not None:
            if self._tables is None and not self._difference.expects:
                for positions in stream.positions():
                    self._died(positions)
            else:
                for table, positions in self._tables or stream.unordered():
                    if self._difference.expects:
                        self._difference.read(stream.decoded(table), positions)
                    else:
                        self._died(positions)
        self._difference.finish()
        if self._view is not None:
            self._view.finish()
