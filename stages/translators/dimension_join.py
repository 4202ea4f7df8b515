"""Join the records of a view with a table that is looked up by its key, while both change.

The table, such as that of all customers, is not copied into the stage: a call looks up the record
of its key. A change of the table calls the groups whose records it concerns.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, get_args

from cbp import Lookup, RunAny, Schema, Translate, View
from cbp.errors import DefinitionError, Mistake
from stages.bags import Bag, Record, column_at, emit, names_of

__all__ = ["DimensionJoin", "Unmatched"]

Unmatched = Literal["left", "inner"]


class DimensionJoin(Translate):
    """Join each record with a table's record of its key; as in SQL, null matches nothing.

    Shape, for `DimensionJoin("id BIGINT, customer STRING", "customer STRING, name STRING",
    on="customer", key="id")`:
        rows: the changes of a view.
        dimension: a view with the key `customer`, which is looked up.
        joined: a view `(id, customer, name)` with the key `customer, id`. The columns of the rows,
            then those of the table that are not in `on`.

    Without `key`, records are counted: all their columns are the key of the view, which has a
    column `copies BIGINT` too.

    Args:
        rows: DDL of the records; no column is named `sign` or `copies`.
        dimension: DDL of the table; besides `on`, no column has a name of the records.
        on: Names of the columns that are compared, separated by commas: all of the table's key.
        how: `left` includes records without a match, with nulls; `inner` leaves them out.
        key: The key of the view that is read.
    """

    runnable = RunAny()
    keep: ClassVar[bool] = True
    """Whether state stays until it is replaced or deleted; a call then need not emit all of it."""

    def __init__(
        self, rows: str, dimension: str, on: str, how: Unmatched = "left", key: str = ""
    ) -> None:
        if how not in get_args(Unmatched):
            message = f"{how!r}; use one of {', '.join(get_args(Unmatched))}"
            raise DefinitionError(Mistake("parameter_invalid", "dimension_join.how", message))
        route = names_of(on)
        self._bag = Bag(rows, route, key, where="dimension_join.rows")
        self._keeps_unmatched = how == "left"
        self.rows, self.known = self._bag.input(), self._bag.state(keep=self.keep)
        self.dimension = Lookup(dimension, by=on, wake=True)
        table = Schema.parse(dimension, where="dimension_join.dimension")
        for name in route:
            column_at(table, name, "dimension_join.dimension")
        added = [column for column in table.fields if column.name not in route]
        self._added = [table.index(column.name) for column in added]
        columns = [f"{one.name} {one.type}" for one in (*self._bag.columns.fields, *added)]
        columns += ["copies BIGINT"] if self._bag.counted else []
        self._names = [column.partition(" ")[0] for column in columns]
        view_key = ", ".join([*route, *self._bag.second])
        self.joined = View(", ".join(columns), key=view_key, keep=self.keep)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Join changed records; if the table's record changed, all records of the group."""
        changes = self._bag.apply(group.rows, group.known, out.known)
        about = None if None in key else group.dimension.one()
        is_new = any(True for _ in group.dimension_changes)
        touched = self._bag.all(group.known, changes) if is_new else changes.items()
        emit({name: self._record(row, about) for name, row in touched}, out.joined)

    def _record(self, row: Record | None, about: Any) -> Record | None:
        if row is None or (about is None and not self._keeps_unmatched):
            return None
        added = (None if about is None else about[i] for i in self._added)
        return (*row[:-1], *added, *((row[-1],) if self._bag.counted else ()))
