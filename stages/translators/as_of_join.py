"""Join each record with the newest one that was valid at its time, while both sides change.

A call looks up the partners of changed records only. A late record on the right also affects the
records on the left from its time on.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from cbp import RunAny, Schema, Translate, View
from stages.bags import Bag, Name, Record, column_at, emit, names_of, ordered

__all__ = ["AsOfJoin"]

_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)


class AsOfJoin(Translate):
    """Join each record of the left with the latest one of the right up to its own time.

    Among records of the right with equal times, the one with the smallest key counts. Records
    of the left without a partner, or without a time, are included with nulls. A null in `on`
    matches nothing, as in SQL.

    Shape, for `AsOfJoin("id BIGINT, pair STRING, at TIMESTAMP", "pair STRING, since TIMESTAMP,
    rate DOUBLE", on="pair", at="at", since="since", left_key="id", right_key="pair, since")`:
        left, right: the changes of two views.
        joined: a view `(id, pair, at, since, rate)` with the key `pair, at, id`. The columns of the
            left, then those of the right that are not in `on`.

    Without `left_key`, records of the left are counted: all its columns are the key of the view,
    which has a column `copies BIGINT` too. Without `right_key` all columns identify a record of
    the right.

    Args:
        left: DDL of the records on the left; no column is named `sign` or `copies`.
        right: DDL of those on the right; besides `on`, no column has a name of the left,
            and none is `place`.
        on: Names of the columns that are compared, separated by commas; of equal types.
        at: The column of type TIMESTAMP on the left.
        since: The column of type TIMESTAMP on the right.
        left_key: The key of the view on the left.
        right_key: The key of the view on the right.
    """

    runnable = RunAny()
    keep: ClassVar[bool] = True
    """Whether state stays until it is replaced or deleted; a call then need not emit all of it."""

    def __init__(
        self,
        left: str,
        right: str,
        on: str,
        at: str,
        since: str,
        left_key: str = "",
        right_key: str = "",
    ) -> None:
        route, where = names_of(on), ("as_of_join.left", "as_of_join.right")
        rights = Schema.parse(right, where=where[1])
        self._since = column_at(rights, since, "as_of_join.since", "TIMESTAMP")
        lefts = Schema.parse(left, where=where[0])
        self._at, self._time = column_at(lefts, at, "as_of_join.at", "TIMESTAMP"), at
        self._left = Bag(left, route, left_key, first=at, where=where[0])
        self._right = Bag(f"place BIGINT, {right}", route, right_key, first="place", where=where[1])
        self.left, self.right = self._left.input(), Bag(right, route).input()
        self.left_rows = self._left.state(keep=self.keep)
        self.right_rows = self._right.state(keep=self.keep)
        added = [
            column for column in self._right.columns.fields if column.name not in (*route, "place")
        ]
        self._added = [self._right.columns.index(column.name) for column in added]
        columns = [f"{one.name} {one.type}" for one in (*self._left.columns.fields, *added)]
        columns += ["copies BIGINT"] if self._left.counted else []
        self._names = [column.partition(" ")[0] for column in columns]
        key = ", ".join([*route, *self._left.second])
        self.joined = View(", ".join(columns), key=key, keep=self.keep)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Join changed records of the left, and records that changes of the right may affect."""
        matched = () if None in key else group.right  # a null matches nothing
        placed = ((_place(row[self._since]), *row) for row in matched if row[self._since])
        lefts = self._left.apply(group.left, group.left_rows, out.left_rows)
        rights = self._right.apply(placed, group.right_rows, out.right_rows)
        touched = dict(lefts)
        if rights:
            first = _BEGIN - timedelta(microseconds=max(place for place, *_ in rights))
            for row in group.left_rows.range(**{self._time: (first, None)}):
                touched.setdefault(self._left.name(row), tuple(row))
        come = sorted((ordered(name), right) for name, right in rights.items() if right)
        changes: dict[Name, Record | None] = {}
        for name, left in touched.items():
            if left:
                partner = self._partner(left[self._at], group.right_rows, rights, come)
                changes[name] = self._record(left, partner)
            else:
                changes[name] = None
        emit(changes, out.joined)

    def _partner(
        self, at: datetime | None, kept: Any, rights: Any, come: list[tuple[Name, Record]]
    ) -> Record | None:
        """Return the latest record of the right up to a time, which has the lowest place."""
        if at is None:
            return None
        place = _place(at)
        rows = kept.range(place=(place, None))
        before = next((tuple(row) for row in rows if self._right.name(row) not in rights), None)
        after = bisect_left(come, (ordered([place]),))
        if after == len(come):
            return before
        order, new = come[after]
        return before if before and ordered(self._right.name(before)) < order else new

    def _record(self, left: Record, right: Record | None) -> Record:
        added = (right[i] if right else None for i in self._added)
        return (*left[:-1], *added, *((left[-1],) if self._left.counted else ()))


def _place(at: datetime) -> int:
    """Return the place of a time; later ones come first."""
    return (_BEGIN - at) // timedelta(microseconds=1)
