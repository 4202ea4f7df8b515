"""Kept state in the reference engine: a group's records as a sorted list.

In the other engines: `cbp.engine.kernel.kept_groups`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cbp.engine.columnar.kept_records import Bound, KeptShape, kept_shape
from cbp.engine.columnar.values import Row, own_row
from cbp.engine.reference.call import record_type
from cbp.model.dataflow.equality import identity
from cbp.model.dataflow.stage import StateSpec


class ListedRecords:
    """The records of one group before its call; a `KeptReader`."""

    def __init__(self, spec: StateSpec, rows: Sequence[Row]) -> None:
        self._spec, shape = spec, kept_shape(spec)
        pairs = [(shape.order_of(shape.second_of(row)), row) for row in rows]
        pairs.sort(key=lambda pair: pair[0])
        self._orders, self._rows = [order for order, _ in pairs], [row for _, row in pairs]
        self._by_second = {shape.second_of(row): row for row in rows}

    def get(self, second: Row) -> Any | None:
        """Return the record with this second key; `None` if there is none."""
        row = self._by_second.get(second)
        return None if row is None else self._made(row)

    def between(self, low: Bound, high: Bound, *, reverse: bool = False) -> Iterator[Any]:
        """Yield the records from one place to another; see `KeptReader`."""
        rows = self._rows[self._place(low) : self._place(high)]
        return map(self._made, reversed(rows) if reverse else rows)

    def _place(self, bound: Bound) -> int:
        search = bisect_right if bound.behind else bisect_left
        return search(self._orders, bound.order, key=lambda order: order[: len(bound.order)])

    def _made(self, row: Row) -> Any:
        schema = self._spec.schema
        return record_type(self._spec.name, schema)(*own_row(row, schema))


def put_and_delete(
    table: dict[tuple[Any, ...], list[Row]],
    key: tuple[Any, ...],
    shape: KeptShape,
    changes: Mapping[Row, Row | None],
) -> None:
    """Apply the changes of a called group; a record is not replaced by an equal one."""
    rows = {shape.second_of(row): row for row in table.pop(key, ())}
    for second, row in changes.items():
        if row is None:
            rows.pop(second, None)
        elif second not in rows or identity(rows[second]) != identity(row):
            rows[second] = row
    if rows:
        table[key] = list(rows.values())
