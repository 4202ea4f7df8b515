"""Find sessions, on columns: those of many groups at a time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cbp import TranslateArrow
from stages.translators.sessions import Sessions

__all__ = ["SessionsArrow"]


class SessionsArrow(TranslateArrow, Sessions):
    """Begin, end and number of records of each session; the results are those of `Sessions`."""

    # The other form has the declarations; here a call gets many groups.
    def translate(self, groups: Any, out: Any) -> None:  # type: ignore[override]
        """Cut the times of many groups where the gap is."""
        flows = (
            ("times", groups.times.column("time"), groups.times.column("copies")),
            ("rows", groups.rows.column(self._at), groups.rows.column("sign")),
        )
        tables = [
            pa.table({"group": groups.ids(name), "time": at, "copies": n.cast(pa.int64())})
            for name, at, n in flows
        ]
        times = pa.concat_tables(tables).filter(pc.field("time").is_valid())
        times = times.group_by(["group", "time"]).aggregate([("copies", "sum")])
        times = times.filter(pc.field("copies_sum") != 0).sort_by(
            [("group", "ascending"), ("time", "ascending")]
        )
        if not len(times):
            return
        ids, copies = (times.column(name).to_numpy() for name in ("group", "copies_sum"))
        at = times.column("time").cast(pa.int64()).to_numpy()
        gap = self._gap // timedelta(microseconds=1)
        first = np.flatnonzero(np.append(True, (np.diff(ids) != 0) | (np.diff(at) >= gap)))
        last = np.append(first[1:], len(ids)) - 1
        rows = groups.keys.take(ids).append_column("time", times.column("time"))
        out.times(rows.append_column("copies", pa.array(copies)))
        sessions = groups.keys.take(ids[first])
        sessions = sessions.append_column("begin", times.column("time").take(first))
        sessions = sessions.append_column("finish", times.column("time").take(last))
        out.sessions(sessions.append_column("records", pa.array(np.add.reduceat(copies, first))))
