"""The rows of one data file in the order of their times, for timers.

A run for due timers needs the first few of a file, and the next one after them. So the earliest
rows are sorted once per file and process, as many as are due and some thousands ahead. The file is
looked through again only when the time has passed those. Files are immutable; rows that are deleted
are left out by the caller (`cbp.engine.state.timers`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cbp.engine.columnar.arrow_types import Int64s

_CHUNK_ROWS = 64


class TimeOrder:
    """Rows of one file in the order of their times.

    Args:
        times: The time of every row, in microseconds since 1970.
        ahead: Number of rows that are sorted beyond those that are due.
    """

    def __init__(self, times: Int64s, *, ahead: int) -> None:
        self._times, self._ahead = times, ahead
        self._earliest = np.empty(0, np.int64), np.empty(0, np.int64)

    def until(self, until_us: int) -> Int64s:
        """Return all rows up to a time, by time."""
        rows, times = self._reach(until_us)
        return rows[: np.searchsorted(times, until_us, "right")]

    def after(self, until_us: int) -> Iterator[tuple[Int64s, Int64s]]:
        """Yield the rows after a time, and their times, in growing parts ordered by time."""
        rows, times = self._reach(until_us)
        start, size = int(np.searchsorted(times, until_us, "right")), _CHUNK_ROWS
        while start < len(self._times):
            if start == len(rows):
                last_us = max(times[-1], until_us + 1) if start else until_us + 1
                rows, times = self._sort(2 * start + 1)
                # Among rows with one time, other ones can be the earliest now.
                start = int(np.searchsorted(times, last_us, "left"))
            stop = min(start + size, len(rows))
            yield rows[start:stop], times[start:stop]
            start, size = stop, 2 * size

    def _reach(self, until_us: int) -> tuple[Int64s, Int64s]:
        """Return the earliest rows by time, with all that are not later, and their times."""
        rows, times = self._earliest
        if len(rows) == len(self._times) or (len(rows) and times[-1] > until_us):
            return rows, times
        return self._sort(int(np.count_nonzero(self._times <= until_us)) + self._ahead)

    def _sort(self, many: int) -> tuple[Int64s, Int64s]:
        """Return and keep at least `many` of the earliest rows; two threads may do it at once."""
        rows = np.arange(len(self._times))
        if many < len(rows):
            rows = np.argpartition(self._times, many)[:many]
        rows = rows[np.argsort(self._times[rows], kind="stable")]
        self._earliest = rows, self._times[rows]
        return self._earliest
