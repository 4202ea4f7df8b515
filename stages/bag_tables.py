"""Bags on columns: the records of many groups, updated by signed changes; their order and times.

The counterpart of `stages.bags` for stages on columns. No record becomes a Python object. The names
of columns that are added here begin with `_`, as no author's column does; `copies` is declared.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

GROUP, COPIES = "_group", "copies"
_ROW, _SIGNED = "_row", "_copies"


def changes_of(groups: Any, flow: str) -> pa.Table:
    """Return the changes of an input, with `copies` (the sign) and `_group`, in their order."""
    table = getattr(groups, flow)
    signs = table.column("sign").cast(pa.int64())
    table = table.drop_columns(["sign"]).append_column(COPIES, signs)
    return table.append_column(GROUP, pa.array(groups.ids(flow)))


def current(
    groups: Any, state: str, changes: pa.Table, names: Sequence[str], *, counted: bool
) -> pa.Table:
    """Return the records after some changes, group after group, with `_group`.

    `changes` are those of `changes_of`, and `names` identify a record within its group. If
    `counted`, copies are added up; otherwise the last change of a record counts.
    """
    before = getattr(groups, state)
    if COPIES not in before.column_names:
        before = before.append_column(COPIES, pa.array(np.ones(len(before), np.int64)))
    before = before.append_column(GROUP, pa.array(groups.ids(state)))
    rows = pa.concat_tables([before, changes.select(before.column_names)])
    named = pa.table({GROUP: rows.column(GROUP)} | {name: _plain(rows[name]) for name in names})
    named = named.append_column(_ROW, pa.array(np.arange(len(rows))))
    named = named.append_column(_SIGNED, rows.column(COPIES))
    by_name = named.group_by([GROUP, *names], use_threads=False)
    last = by_name.aggregate([(_ROW, "max"), (_SIGNED, "sum")])
    newest = rows.take(last.column(_ROW + "_max"))
    if counted:
        copies = last.column(_SIGNED + "_sum")
        newest = newest.set_column(newest.column_names.index(COPIES), COPIES, copies)
        newest = newest.filter(pc.field(COPIES) != 0)
    else:
        newest = newest.filter(pc.field(COPIES) > 0)
    return newest.take(pa.array(np.argsort(ids_of(newest), kind="stable")))


def ids_of(table: pa.Table) -> Int64s:
    """Return the group of each record."""
    ids: Int64s = table.column(GROUP).to_numpy()
    return ids


def null_keys(groups: Any) -> Mask:
    """Return which groups have a null in their key; a null matches no record, as in SQL."""
    nulls = np.zeros(len(groups), np.bool_)
    for column in groups.keys.columns:
        nulls |= column.is_null().to_numpy()
    return nulls


def order_by(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return the records by group, and within it by columns: nulls first, ascending, NaN last."""
    keys = {GROUP: table.column(GROUP)}
    for at, name in enumerate(names):
        column = _plain(table.column(name))
        if pa.types.is_floating(column.type):  # Arrow puts NaN beside null
            keys[f"{at}_nan"] = pc.is_nan(column)
        keys[f"{at}"] = column
    by = [(name, "ascending", "at_start") for name in keys]
    return table.take(pc.sort_indices(pa.table(keys), sort_keys=by))


def micros(times: pa.ChunkedArray) -> Int64s:
    """Return times without nulls as microseconds since 1970."""
    numbers: Int64s = times.cast(pa.int64()).to_numpy()
    return numbers


def first_from(ids: Int64s, times: Int64s, wanted_ids: Int64s, wanted: Int64s) -> Int64s:
    """Return, for many groups, the first record at or after a time; -1 if there is none.

    The records, `ids` and `times`, are sorted by group and time.
    """
    sides = np.repeat([1, 0], [len(ids), len(wanted)])  # wanted times before equal ones
    order = np.lexsort((sides, np.concatenate([times, wanted]), np.concatenate([ids, wanted_ids])))
    before = np.empty(len(order), np.int64)
    before[order] = np.cumsum(sides[order])
    places = before[len(ids) :]
    inside = places < len(ids)
    inside[inside] = ids[places[inside]] == wanted_ids[inside]
    return np.where(inside, places, -1)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values with only one NaN and one zero, so that Arrow finds equal ones equal."""
    if not pa.types.is_floating(column.type):
        return column
    plain = pc.add(column, pa.scalar(0.0, column.type))
    return pc.if_else(pc.is_nan(plain), pa.scalar(nan, column.type), plain)
