"""Groups of one bucket: which records of every flow belong to which key.

Records arrive as one sorted run per flow. They are grouped by whole columns: first the unique
hashes of the bucket, then for every flow the range of rows of each hash.

Two keys may share a hash, so the keys of a window are compared too, as columns (`group_keys`). A
comparison that cannot decide (NaN is not equal to itself) returns "not alike". The caller then
splits the window record by record, which is slower but always right.

Memory: 8 bytes per record and 24 bytes per group and flow, while a bucket is processed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cbp.engine.columnar.arrow_types import Int64s, with_types
from cbp.engine.columnar.key_hash import flipped
from cbp.engine.columnar.row_codec import decode_columns, decode_lists
from cbp.engine.columnar.values import FLOATS, Row, unify
from cbp.model.flow.schema import DataType


@dataclass(frozen=True, slots=True)
class FlowKeys:
    """The keys of one flow's records in a window.

    Group g has the rows `starts[g]` to `stops[g]`. If the records of each hash are `ordered` by
    key, all of them have one key if the first and the last have the same.
    """

    table: pa.Table
    starts: Int64s
    stops: Int64s
    ordered: bool

    def firsts(self, groups: Int64s) -> pa.Table:
        """Return the key of the first record of each group; no group may be empty."""
        rows = self.starts[groups]
        if len(rows) == self.table.num_rows:  # one record each
            return self.table
        return self.table.take(pa.array(rows))

    def alike(self, groups: Int64s, firsts: pa.Table) -> bool:
        """Return whether all records of each group have the same key."""
        sizes = self.stops[groups] - self.starts[groups]
        several = np.flatnonzero(sizes > 1)
        if not len(several):
            return True
        if self.ordered:
            lasts = self.table.take(pa.array(self.stops[groups[several]] - 1))
            return bool(lasts.equals(firsts.take(pa.array(several))))
        every = span_rows(self.starts[groups[several]], sizes[several])
        first = np.repeat(several, sizes[several])
        return bool(self.table.take(pa.array(every)).equals(firsts.take(pa.array(first))))


def group_keys(flows: Sequence[FlowKeys], groups: int, schema: pa.Schema) -> tuple[pa.Table, bool]:
    """Return each group's key, and whether every record of a group has that key."""
    at = np.full(groups, -1, np.int64)
    groups_so_far = schema.empty_table()
    pure = True
    for flow in flows:
        mine = np.flatnonzero(flow.stops > flow.starts)
        if not len(mine):
            continue
        raw = flow.firsts(mine)
        pure = pure and flow.alike(mine, raw)
        keys = with_types(raw.rename_columns(schema.names), schema)
        places = at[mine]
        known = places >= 0
        if known.all():
            before = groups_so_far
            if len(mine) != before.num_rows or not np.array_equal(places, np.arange(len(mine))):
                before = before.take(pa.array(places))
            pure = pure and bool(before.equals(keys))
            continue
        if known.any():
            before = groups_so_far.take(pa.array(at[mine[known]]))
            pure = pure and bool(before.equals(keys.filter(pa.array(known))))
        at[mine[~known]] = groups_so_far.num_rows + np.flatnonzero(~known)
        groups_so_far = pa.concat_tables([groups_so_far, keys]) if len(groups_so_far) else keys
    if groups_so_far.num_rows == groups and bool(np.all(at == np.arange(groups))):
        return groups_so_far, pure
    return groups_so_far.take(pa.array(at)), pure


def positive_zeros(keys: pa.Table) -> pa.Table:
    """Return keys with 0.0 for -0.0: both are one key, and authors get the positive zero."""
    for at, field in enumerate(keys.schema):
        if pa.types.is_floating(field.type):
            keys = keys.set_column(at, field, pc.add(keys.column(at), pa.scalar(0, field.type)))
    return keys


def span_rows(starts: Int64s, lengths: Int64s) -> Int64s:
    """Return the row numbers of some spans, one span after the other, each ascending."""
    before = np.cumsum(lengths) - lengths
    rows: Int64s = np.repeat(starts - before, lengths) + np.arange(lengths.sum())
    return rows


@dataclass(slots=True)
class Ranges:
    """Rows `starts[g]` to `stops[g]` of a flow belong to group `g`."""

    starts: Int64s
    stops: Int64s

    def part(self, start: int, stop: int) -> Ranges:
        """Return the ranges of groups `start` to `stop`."""
        return Ranges(self.starts[start:stop], self.stops[start:stop])


@dataclass
class FlowRun:
    """The records of one flow in one bucket, sorted by (hash, key, order).

    `table` has the columns of the shuffle (slots), `keys` the names of the key slots, and `columns`
    the slots of the author's columns, in order. `row_bytes` is the average size of a record; 0 if
    unknown. `flips`: the signs of hashes are `flipped`, so that they ascend over all buckets.
    """

    name: str
    table: pa.Table
    keys: tuple[str, ...]
    key_types: tuple[DataType, ...]
    columns: tuple[str, ...]
    types: tuple[DataType, ...]
    row_bytes: int = 0
    flips: bool = False

    @cached_property
    def hashes(self) -> Int64s:
        """`_hash` of every record, ascending."""
        hashes: Int64s = self.table.column("_hash").to_numpy()
        return flipped(hashes) if self.flips else hashes

    def part(self, start: int, stop: int) -> pa.Table:
        """Return the author's columns of some records, under the names of their slots."""
        return _rows(self.table.select(list(self.columns)), start, stop)

    def lists(self, start: int, stop: int) -> list[list[object]]:
        """Return the author's columns of some records, each as a list."""
        return decode_lists(self.part(start, stop), self.columns, self.types)

    def rows(self, start: int, stop: int) -> list[tuple[object, ...]]:
        """Return the author's columns of some records, record by record."""
        return list(zip(*self.lists(start, stop), strict=True))

    def key_table(self, start: int, stop: int) -> pa.Table:
        """Return the key columns of some records, as a view."""
        return _rows(self.table.select(list(self.keys)), start, stop)

    def first_place(self, hash_: int) -> int | None:
        """Return the place of the first record with a hash, as the shuffle numbers it."""
        at = int(np.searchsorted(self.hashes, hash_))
        if at == len(self.hashes) or self.hashes[at] != hash_:
            return None
        place: int = self.table.column("_seq")[at].as_py()
        return place

    def keys_in(self, lists: list[list[object]]) -> list[list[object]] | None:
        """Return the key columns of `lists`; `None` if the author's function computes the key."""
        if not set(self.keys) <= set(self.columns):
            return None
        return [lists[self.columns.index(key)] for key in self.keys]

    def keys_of(self, start: int, stop: int) -> list[tuple[object, ...]]:
        """Return the keys of some records in the form in which keys are compared."""
        part = self.key_table(start, stop)
        return key_rows(decode_columns(part, self.keys, self.key_types), self.key_types)


def _rows(table: pa.Table, start: int, stop: int) -> pa.Table:
    """Return some rows; all rows are not sliced, since a slice takes Arrow 20 us."""
    return table if stop - start == table.num_rows else table.slice(start, stop - start)


def key_rows(rows: Iterable[Row], types: Sequence[DataType]) -> list[Row]:
    """Return keys in the form in which they are compared: one zero, one NaN."""
    if any(type_.kind in FLOATS for type_ in types):
        return [unify(row) for row in rows]
    return list(rows)


def union(runs: Sequence[Int64s]) -> Int64s:
    """Return the distinct hashes of several ascending runs, in ascending order."""
    full = [run for run in runs if len(run)]
    if not full:
        return np.empty(0, np.int64)
    hashes = full[0] if len(full) == 1 else np.sort(np.concatenate(full), kind="stable")
    new = np.empty(len(hashes), np.bool_)
    new[0] = True
    np.not_equal(hashes[1:], hashes[:-1], out=new[1:])
    ordered: Int64s = hashes[new]
    return ordered


def rows_of_hashes(hashes: Int64s, run: Int64s) -> Ranges:
    """Return the rows of each hash (ascending, unique) in a run (ascending hashes)."""
    starts = np.searchsorted(run, hashes, "left").astype(np.int64)
    if len(run) and bool(np.all(run[1:] != run[:-1])):
        here = run[np.minimum(starts, len(run) - 1)] == hashes
        return Ranges(starts, starts + (here & (starts < len(run))))
    return Ranges(starts, np.searchsorted(run, hashes, "right").astype(np.int64))


def window_ends(ranges: Sequence[Ranges], groups: int, rows_max: int) -> list[int]:
    """Cut the groups into windows of at most `rows_max` records, but at least one group."""
    if not groups:
        return []
    sizes = np.sum([r.stops - r.starts for r in ranges], axis=0)
    total = np.cumsum(sizes)
    ends, done = [], 0
    while done < groups:
        before = total[done - 1] if done else 0
        end = int(np.searchsorted(total, before + rows_max, "right"))
        done = max(end, done + 1)
        ends.append(done)
    return ends
