"""Find sessions: records of one group, each less than a gap of time after the one before."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from cbp import Input, Schema, State, Translate, View
from stages.bags import column_at, names_of

__all__ = ["Sessions"]


class Sessions(Translate):
    """Begin, end and number of records of each session.

    A late record can join two sessions, and a removed one can split them. A call reads all
    times of its group. A record without a time is in no session.

    Shape, for `Sessions("person STRING, at TIMESTAMP", "person", at="at", gap_seconds=1800)`:
        rows: the changes of a view with these columns, and perhaps more.
        sessions: a view `(person, begin, finish, records)` with the key `person, begin`; `begin`
            and `finish` are the times of the first and the last record.

    Args:
        schema: DDL of the records.
        by: Columns, separated by commas; each combination of values has its own sessions.
        at: The column of type TIMESTAMP that has the time.
        gap_seconds: Records that are at least this far apart are in two sessions.
    """

    def __init__(self, schema: str, by: str, at: str, gap_seconds: float) -> None:
        columns, names = Schema.parse(schema, where="sessions.schema"), names_of(by)
        for name in names:
            column_at(columns, name, "sessions.by")
        self._at = column_at(columns, at, "sessions.at", "TIMESTAMP")
        self._gap = timedelta(seconds=gap_seconds)
        self.key = key = ", ".join(f"{name} {columns[name].type}" for name in names)
        self.rows = Input(f"{schema}, sign INT", route_by=by, changes="signed")
        self.times = State(f"{key}, time TIMESTAMP, copies BIGINT")
        self.sessions = View(
            f"{key}, begin TIMESTAMP, finish TIMESTAMP, records BIGINT", key=f"{by}, begin"
        )

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Split the times of a group into sessions, at the gaps."""
        copies: Counter[datetime] = Counter({row.time: row.copies for row in group.times})
        for row in group.rows:
            if row[self._at] is not None:
                copies[row[self._at]] += row.sign
        sessions: list[list[datetime]] = []
        for at in sorted(at for at, n in copies.items() if n):
            out.times(*key, at, copies[at])
            if not sessions or at - sessions[-1][-1] >= self._gap:
                sessions.append([])
            sessions[-1].append(at)
        for times in sessions:
            out.sessions(*key, times[0], times[-1], sum(copies[at] for at in times))
