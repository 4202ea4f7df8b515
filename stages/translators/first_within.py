"""Remove duplicates within a time: records that are alike in some columns, and follow too soon."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

from cbp import Input, Schema, State, Translate, View
from cbp.errors import DefinitionError, Mistake
from stages.bags import column_at, ordered, same

__all__ = ["FirstWithin"]


class FirstWithin(Translate):
    """Drop records that follow a record with the same values in some columns too soon.

    In order of time, a record counts if none with equal columns counted less than some seconds
    before it. Among equal times the first by all columns counts. If a record arrives late or is
    deleted, later ones are decided again; a call reads all records of its group.

    Shape, for `FirstWithin("alarm STRING, at TIMESTAMP, text STRING", "alarm", at="at",
    seconds=60)`:
        rows: the changes of a view with these columns, and perhaps more.
        firsts: a view `(alarm, at, text)` with the key `alarm, at`.

    Args:
        schema: DDL of the records, of columns of atoms; none is named `sign` or
            `copies`.
        by: The columns, separated by commas, in which records are alike.
        at: The column of type TIMESTAMP that has the time; a record without one does not count.
        seconds: How long such records are left out.
    """

    def __init__(self, schema: str, by: str, at: str, seconds: float) -> None:
        columns = Schema.parse(schema, where="first_within.schema")
        self._names = list(columns.names)
        self._at = column_at(columns, at, "first_within.at", "TIMESTAMP")
        self._patience = timedelta(seconds=seconds)
        if seconds <= 0:
            message = f"{seconds:g}; give more than 0"
            raise DefinitionError(Mistake("parameter_invalid", "first_within.seconds", message))
        self.rows = Input(f"{schema}, sign INT", route_by=by, changes="signed")
        self.known = State(f"{schema}, copies BIGINT")
        self.firsts = View(schema, key=f"{by}, {at}")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Go through the records in order of time, from one that counts to the next."""
        copies: Counter[tuple[Any, ...]] = Counter()
        for row in group.known:
            copies[same(row[:-1])] += row.copies
        for row in group.rows:
            copies[same(row[:-1])] += row.sign
        last = None
        records = (record for record, n in copies.items() if n)
        for record in sorted(
            records, key=lambda one: (ordered(one[self._at : self._at + 1]), ordered(one))
        ):
            out.known(*record, copies[record])
            at = record[self._at]
            if at is not None and (last is None or at - last >= self._patience):
                out.firsts(*record)
                last = at
