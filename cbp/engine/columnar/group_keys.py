"""The key of every group of a window, and whether all records of a group share it.

Groups are formed by hash. Two keys may share a hash, so the keys themselves are compared. This
happens on Arrow columns and costs no Python per record.

A comparison that cannot tell (NaN is not equal to itself) answers "not alike". The caller
then splits the window record by record, which is slower and always right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FlowKeys:
    """The keys of one flow's records in a window.

    Attributes:
        starts, stops: Group g has the rows `starts[g]` to `stops[g]`.
        ordered: Whether the records of one hash are sorted by key. Then all records have one
            key if the first and the last record have it.
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
        """Return whether all records of each group have the key of its first record."""
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
        keys = raw.rename_columns(schema.names).cast(schema)
        known = at[mine] >= 0
        if known.any():
            before = groups_so_far.take(pa.array(at[mine[known]]))
            pure = pure and bool(before.equals(keys.filter(pa.array(known))))
        if not known.all():
            at[mine[~known]] = groups_so_far.num_rows + np.flatnonzero(~known)
            groups_so_far = pa.concat_tables([groups_so_far, keys])
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
