"""On which line of its file each record begins, in few numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["PAIRS_MAX", "UNKNOWN", "LineMap"]

PAIRS_MAX = 100
"""So many pairs are kept of a file; on which lines its later records begin is not known then."""

UNKNOWN = 0
"""Stands for the line in a pair if nothing is known of the records from there on."""


class LineMap:
    """Pairs of a record, from 0, and its line, from 1; the records behind it follow line by line.

    Attributes:
        pairs: The pairs, ascending.
    """

    def __init__(self) -> None:
        self.pairs: list[tuple[int, int]] = []
        self._records, self._next = 0, UNKNOWN

    def add(self, lines: Sequence[int]) -> None:
        """Take the lines of the next records, ascending."""
        if not len(lines):
            return
        starts = [0]
        if not isinstance(lines, range):  # two records of an XML file can begin on one line
            starts += (np.flatnonzero(np.diff(np.asarray(lines)) != 1) + 1).tolist()
        for at in starts:
            if at or lines[0] != self._next:
                self._begin(self._records + at, int(lines[at]))
        self._records, self._next = self._records + len(lines), int(lines[-1]) + 1

    def skip(self, records: int) -> None:
        """Take the next records, which begin on lines that are not known."""
        if records and (not self.pairs or self.pairs[-1][1] != UNKNOWN):
            self._begin(self._records, UNKNOWN)
        self._records, self._next = self._records + records, UNKNOWN

    def _begin(self, record: int, line: int) -> None:
        if len(self.pairs) < PAIRS_MAX:
            self.pairs.append((record, line))
        elif self.pairs[-1][1] != UNKNOWN:
            self.pairs.append((record, UNKNOWN))
