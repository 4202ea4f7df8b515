"""Changes of views, from the state diff: on whole columns, in the order of groups and keys.

    died records --\
                    sorted by (group, second key) -> pairs are updates -> signed records
    born records --/                                 others are inserted or deleted

In a bag (a view without a key) equal records cancel out, and the others are ordered by all columns.
Equal records cannot be distinguished, so all of them get the same zero (no -0.0).

Invariant: a record that did not change gives no change, even if the diff writes it again. The diff
does so if the author emitted another spelling (a double for a FLOAT column, a struct without a null
field), or if the record has a NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cbp.engine.columnar.arrow_types import Int64s, arrow_schema, with_types
from cbp.engine.columnar.groups import positive_zeros
from cbp.engine.columnar.row_codec import encode_column
from cbp.engine.columnar.row_codes import first_twice, row_codes
from cbp.engine.columnar.values import Row
from cbp.engine.kernel.arrow.groups import author_schema
from cbp.engine.kernel.arrow.type_check import narrow
from cbp.engine.storage.external_sort import order_by_columns
from cbp.model.dataflow.stage import StateSpec
from cbp.model.flow.schema import Field
from cbp.model.flow.signed_changes import (
    CHANGE_TYPE,
    DELETE,
    INSERT,
    SIGN,
    SIGNS,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    changes_schema,
)

SIDE = "_side"
"""Column that is 0 for records that a view had, and 1 for those that it has instead."""

_GROUP = "_group"
_TYPES = (INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE)
_INSERT, _BEFORE, _AFTER, _DELETE = range(4)
_TEXTS = pa.array(_TYPES)
_SIGNS = np.array([SIGNS[kind] for kind in _TYPES], np.int32)


def second_keys(view: StateSpec, rows: Sequence[Row]) -> pa.Table:
    """Return the second keys of emitted records, as authors see them."""
    schema = view.schema.select(view.second_key)
    at = [view.schema.index(name) for name in view.second_key]
    columns = [
        encode_column([row[place] for row in rows], field.type, nullable=field.nullable)
        for place, field in zip(at, schema.fields, strict=True)
    ]
    return pa.table(columns, names=list(view.second_key)).cast(author_schema(schema))


def require_single(
    view: StateSpec, groups: Int64s, emitted: Sequence[Row], ends: Sequence[int]
) -> None:
    """Refuse two records of one key of a view.

    Only `groups` are checked: the others have no new records. Group g emitted `emitted[ends[g -
    1]:ends[g]]`.
    """
    stops = np.array(ends, np.int64)
    starts = np.concatenate([[0], stops[:-1]])
    changed = np.unique(groups)
    changed = changed[stops[changed] - starts[changed] > 1]
    if not len(changed):
        return
    spans = list(zip(starts[changed].tolist(), stops[changed].tolist(), strict=True))
    keys = second_keys(view, [row for start, stop in spans for row in emitted[start:stop]])
    owners = np.repeat(changed, stops[changed] - starts[changed])
    if first_twice(keys, owners) is not None:
        message = f"view {view.name!r}: two emitted records have the same key"
        raise ValueError(message)


@dataclass(frozen=True)
class ViewChanges:
    """Writes the changes of one view."""

    view: StateSpec
    write_output: Callable[[str, list[pa.Array]], None]

    @property
    def names(self) -> list[str]:
        """The columns of the view."""
        return list(self.view.schema.names)

    def write(
        self, died: pa.Table | None, died_groups: Int64s, born: pa.Table | None, born_groups: Int64s
    ) -> None:
        """Write the changes of the records of some groups.

        The groups of removed records (`died`) and of new ones are numbers that ascend in
        visiting order.
        """
        types = author_schema(self.view.schema)
        tables = (table for table in (died, born) if table is not None)
        both = [with_types(table.select(self.names), types) for table in tables]
        if not both:
            return
        table, groups = pa.concat_tables(both), np.concatenate([died_groups, born_groups])
        sides = np.repeat(np.arange(2), [len(died_groups), len(born_groups)])
        if self.view.bag:
            table = positive_zeros(table)
            (records,) = row_codes([table], [groups])
            left = _surplus(records, sides)
            table, groups, sides = table.take(pa.array(left)), groups[left], sides[left]
        order = self._order(table, groups, sides)
        self.write_ordered(table.take(pa.array(order)), groups[order], sides[order])

    def write_ordered(self, table: pa.Table, groups: Int64s, sides: Int64s) -> None:
        """Write changes of records in the order of group, second key and `SIDE`.

        The table has the types that authors see. In a bag no record is on both sides.
        """
        if self.view.bag:
            self._write_kinds(table, np.where(sides == 0, _DELETE, _INSERT))
            return
        keys = groups
        if self.view.second_key:
            (keys,) = row_codes([table.select(list(self.view.second_key))], [groups])
        before = np.flatnonzero(keys[1:] == keys[:-1])
        kinds = np.where(sides == 0, _DELETE, _INSERT)
        kinds[before], kinds[before + 1] = _BEFORE, _AFTER
        if len(before) and any(map(_has_spellings, self.view.schema.fields, table.columns)):
            (records,) = row_codes([table])
            same = before[records[before] == records[before + 1]]
            stays = np.ones(len(kinds), np.bool_)
            stays[same] = stays[same + 1] = False
            table, kinds = table.filter(pa.array(stays)), kinds[stays]
        self._write_kinds(table, kinds)

    def _write_kinds(self, table: pa.Table, kinds: Int64s) -> None:
        columns = [*table.columns, _TEXTS.take(pa.array(kinds)), pa.array(_SIGNS[kinds])]
        names = [*table.column_names, CHANGE_TYPE, SIGN]
        changes = pa.Table.from_arrays(columns, names=names)
        for part in narrow(changes, arrow_schema(changes_schema(self.view.schema))):
            self.write_output(self.view.changes, part.columns)

    def _order(self, table: pa.Table, groups: Int64s, sides: Int64s) -> Int64s:
        second = list(self.view.order if self.view.bag else self.view.second_key)
        if not second:
            return _merged(groups, sides)
        sortable = positive_zeros(table.select(second))
        sortable = sortable.append_column(_GROUP, pa.array(groups))
        sortable = sortable.append_column(SIDE, pa.array(sides))
        return order_by_columns(sortable, [_GROUP, *second, SIDE])


def _merged(groups: Int64s, sides: Int64s) -> Int64s:
    """Return the order of records by group and side; `sides` ascend, as do a side's groups."""
    many = len(groups) // 2
    has_both = np.array_equal(groups[:many], groups[many:]) and np.array_equal(
        sides, np.repeat([0, 1], many)
    )
    if has_both and np.all(groups[1:many] > groups[: many - 1]):
        pairs: Int64s = np.arange(len(groups)).reshape(2, many).T.ravel()
        return pairs
    order: Int64s = np.argsort(2 * groups + sides, kind="stable")
    return order


def _surplus(records: Int64s, sides: Int64s) -> Int64s:
    """Return the rows that are left once equal records of the two sides have cancelled out.

    Equal records have one number.
    """
    order = np.lexsort((sides, records))
    codes = 2 * records[order] + sides[order]
    firsts = np.flatnonzero(np.diff(codes, prepend=-1))
    rank = np.arange(len(codes)) - np.repeat(firsts, np.diff(firsts, append=len(codes)))
    net = np.bincount(records, weights=2 * sides - 1).astype(np.int64)
    signed = np.where(sides == 0, -net[records], net[records])
    left: Int64s = order[rank < signed[order]]
    return left


def _has_spellings(field: Field, values: pa.ChunkedArray) -> bool:
    """Return whether the diff may take two spellings of one value, such as NaN, for two values."""
    if field.type.kind == "DOUBLE":  # in Python, a NaN is not equal to itself
        return bool(pc.any(pc.is_nan(values)).as_py())
    return field.type.kind == "FLOAT" or bool(field.type.arguments)
