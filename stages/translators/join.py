"""Join two views by equal columns: inner, left, semi and anti, while records come, change and go.

A call costs what the changes join with, not what its group has.
"""

from __future__ import annotations

from itertools import chain, product
from typing import Any, ClassVar, Literal, get_args

from cbp import RunAny, Translate, View
from cbp.errors import DefinitionError, Mistake
from stages.bags import Bag, Name, Record, emit, names_of

__all__ = ["How", "Join"]

How = Literal["inner", "left", "semi", "anti"]


class Join(Translate):
    """Two views, joined by equal columns; a null matches nothing, as in SQL.

    Shape, for `Join("id BIGINT, customer STRING", "customer STRING, name STRING", on="customer",
    left_key="id", right_key="customer")`:
        left, right: the changes of two views.
        joined: a view `(id, customer, name)` with the key `customer, id`. The columns of the left,
            then those of the right that are not in `on`; with `semi` and `anti` those of the left.

    Without `left_key` or `right_key`, records of that side are counted: all its columns are in the
    key of the view, which has a column `copies BIGINT` too.

    Args:
        left: DDL of the records on the left.
        right: DDL of those on the right; besides `on`, no column has a name of the left.
        on: Names of the columns that are compared, separated by commas; of equal types.
        how: `inner`: all pairs. `left`: also records of the left without a partner, with nulls.
            `semi`: records of the left that have a partner. `anti`: records of the left that
            have none.
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
        how: How = "inner",
        left_key: str = "",
        right_key: str = "",
    ) -> None:
        if how not in get_args(How):
            message = f"{how!r}; use one of {', '.join(get_args(How))}"
            raise DefinitionError(Mistake("parameter_invalid", "join.how", message))
        route = names_of(on)
        self._left = Bag(left, route, left_key, where="join.left")
        self._right = Bag(right, route, right_key, where="join.right")
        self.left, self.right = self._left.input(), self._right.input()
        self.left_rows = self._left.state(keep=self.keep)
        self.right_rows = self._right.state(keep=self.keep)
        self._pairs, self._single = how in ("inner", "left"), how != "inner"
        self._partnered = how == "semi"
        rights = self._right.columns.fields if self._pairs else ()
        added = [column for column in rights if column.name not in route]
        self._added = [self._right.columns.index(column.name) for column in added]
        self._second = self._right.second if self._pairs else []
        self._counted = self._left.counted or (self._pairs and self._right.counted)
        columns = [f"{one.name} {one.type}" for one in (*self._left.columns.fields, *added)]
        columns += ["copies BIGINT"] if self._counted else []
        self._names = [column.partition(" ")[0] for column in columns]
        key = ", ".join([*route, *self._left.second, *self._second])
        self.joined = View(", ".join(columns), key=key, keep=self.keep)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Join changed records of either side with the present records of the other."""
        matched = () if None in key else group.right  # a null matches nothing
        lefts = self._left.apply(group.left, group.left_rows, out.left_rows)
        rights = self._right.apply(matched, group.right_rows, out.right_rows)
        changes: dict[Name, Record | None] = {}
        if self._pairs:
            rest = self._left.all(group.left_rows, {})
            unchanged = (pair for pair in rest if pair[0] not in lefts)
            for (name, left), (other, right) in chain(
                product(lefts.items(), self._right.all(group.right_rows, rights)) if lefts else (),
                product(unchanged, rights.items()) if rights else (),
            ):
                changes[name + other] = self._record(left, right) if left and right else None
        if self._single:
            before = next(iter(group.right_rows), None) is not None
            now = any(right for _, right in self._right.all(group.right_rows, rights))
            touched = lefts.items()
            nobody = (None,) * len(self._second)
            for name, left in touched if now == before else self._left.all(group.left_rows, lefts):
                if left and now == self._partnered:
                    changes[name + nobody] = self._record(left, None)
                else:
                    changes.setdefault(name + nobody)
        emit(changes, out.joined)

    def _record(self, left: Record, right: Record | None) -> Record:
        added = (right[i] if right else None for i in self._added)
        copies = left[-1] * (right[-1] if right else 1)
        return (*left[:-1], *added, *((copies,) if self._counted else ()))
