"""Keep the k highest records of each group in a view, while records come, change and go.

All records of a group are kept, ordered, so that the next one moves up when a record of the top is
gone. A call reads the k highest records and those that the changes name, however large a group is.
"""

from __future__ import annotations

from heapq import merge
from itertools import islice
from typing import Any, ClassVar

from cbp import Input, Schema, State, Translate, View
from cbp.errors import DefinitionError, Mistake
from stages.bags import Name, Record, column_at, emit, names_of, ordered, same

__all__ = ["TopK"]

_NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")


class TopK(Translate):
    """The k records of each group with the highest values in one column.

    Among equal values the smaller key comes first. A record whose value is null or NaN has no rank.

    Shape, for `TopK("site STRING, url STRING, score DOUBLE", "site", key="site, url", by="score")`:
        rows: the changes of a view `(site, url, score)` with the key `site, url`.
        top: a view `(rank INT, site, url, score)` with the key `site, rank`; ranks begin at 1.

    Args:
        schema: DDL of the records; no column is named `rank` or `place`.
        group: Columns, separated by commas; each combination of values has its own top.
        key: The key of the view that is read.
        by: The column of numbers that decides. The lowest whole number of its type is not allowed.
        k: Number of records per group, at least 1.
    """

    keep: ClassVar[bool] = True
    """Whether state stays until it is replaced or deleted; a call then need not emit all of it."""

    def __init__(self, schema: str, group: str, key: str, by: str, k: int = 10) -> None:
        columns = _checked(schema, group=group, key=key, by=by, k=k)
        self._k, self._by = k, by
        self._rest = [name for name in names_of(key) if name not in names_of(group)]
        order = ", ".join([group, "place", *self._rest])
        self.rows = Input(f"{schema}, sign INT", route_by=group, changes="signed")
        ranked = f"place {columns[by].type}, {schema}"
        self.ranked = State(ranked, keep=True, key=order) if self.keep else State(ranked)
        self.top = View(f"rank INT, {schema}", key=f"{group}, rank")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Apply the changes to the ordered records, and emit the first k records."""
        changed: dict[Name, Record | None] = {}
        for row in group.rows:
            value = getattr(row, self._by)
            if value is not None and value == value:
                name = self._name(-value, row)
                changed[name] = (-value, *row[:-1]) if row.sign > 0 else None
        emit(changed, out.ranked)
        before = ((self._name(row.place, row), tuple(row)) for row in group.ranked)
        stay = (pair for pair in before if pair[0] not in changed)
        come = sorted(((name, row) for name, row in changed.items() if row), key=_order)
        top = islice(merge(stay, come, key=_order), self._k)
        for rank, (_, (_, *record)) in enumerate(top, 1):
            out.top(rank, *record)

    def _name(self, place: Any, row: Any) -> Name:
        """Return what names a record within its group."""
        return same((place, *(getattr(row, name) for name in self._rest)))


def _order(pair: tuple[Name, Record]) -> tuple[Any, ...]:
    return ordered(pair[0])


def _checked(schema: str, *, group: str, key: str, by: str, k: int) -> Schema:
    """Return the columns of the records.

    Raises:
        DefinitionError: A parameter names no column, no column of numbers, or no number of records.
    """
    if k < 1:
        raise DefinitionError(Mistake("parameter_invalid", "top_k.k", f"{k}; give 1 or more"))
    columns = Schema.parse(schema, where="top_k.schema")
    for where, names in (("group", names_of(group)), ("key", names_of(key)), ("by", [by])):
        for name in names:
            column_at(columns, name, f"top_k.{where}")
    if columns[by].type.kind not in _NUMBERS:
        message = f"{by} is {columns[by].type}; name a column of numbers"
        raise DefinitionError(Mistake("parameter_invalid", "top_k.by", message))
    return columns
