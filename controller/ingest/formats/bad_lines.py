"""Notes about a file while it is read: wrong lines, remarks, the line where each record begins.

A reader notes a wrong line and continues, for a bounded number of lines, so that the producer can
repair all wrong lines at once. By default the file is rejected as a whole: after the first wrong
line no more records are yielded. At most 100 lines are reported, the first ones; `lines_more` says
that later lines may be wrong too.

A source can also reject wrong records one by one (`cbp.model.source.bad_records`). Then the other
records are yielded, and the rejected ones are kept with their text, up to the source's limits.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from cbp.errors import InvariantError
from cbp.model.flow.schema import Schema
from cbp.model.source.bad_records import QUARANTINE_FILE, BadRecords
from cbp.model.source.options import ReadOptions
from controller.ingest.limits import IngestLimits
from controller.ingest.rejection import BadLine, FileRejectedError

PAIRS_MAX = 100
"""Largest number of pairs that are kept of a file; the lines of later records are unknown."""

UNKNOWN = 0
"""The line in a pair from which on the lines of records are unknown."""


class LineMap:
    """Pairs of record number (from 0) and line (from 1); later records follow line by line."""

    def __init__(self) -> None:
        self.pairs: list[tuple[int, int]] = []
        self._records, self._next = 0, UNKNOWN

    def add(self, lines: Sequence[int]) -> None:
        """Add the lines of the next records, ascending."""
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
        """Add the next records, whose lines are unknown."""
        if records and (not self.pairs or self.pairs[-1][1] != UNKNOWN):
            self._begin(self._records, UNKNOWN)
        self._records, self._next = self._records + records, UNKNOWN

    def _begin(self, record: int, line: int) -> None:
        if len(self.pairs) < PAIRS_MAX:
            self.pairs.append((record, line))
        elif self.pairs[-1][1] != UNKNOWN:
            self.pairs.append((record, UNKNOWN))


REJECTED = "rejected"
"""Name of the remark with the records that were rejected."""

_COLUMNS_MAX = 50


class Notes:
    """Collects remarks of bounded size while a file is read."""

    def __init__(self) -> None:
        self._extra: set[str] = set()
        self.missing: tuple[str, ...] = ()
        self.compression = "none"
        self.last_line_open = False
        self.rejected: tuple[BadLine, ...] = ()
        self.lines: tuple[tuple[int, int], ...] = ()

    def extra_columns(self, names: Iterable[str]) -> None:
        """Note columns of the file that the schema does not have."""
        for name in names:
            if len(self._extra) < _COLUMNS_MAX:
                self._extra.add(name[:200])

    def to_json(self) -> dict[str, Any]:
        """Return the remarks as JSON values; usual values are left out."""
        noted: dict[str, Any] = {
            "ignored_columns": sorted(n.encode(errors="replace").decode() for n in self._extra),
            "missing_columns": list(self.missing),
            "compression": self.compression if self.compression != "none" else "",
            "last_line_open": self.last_line_open,
            "lines": [list(pair) for pair in self.lines],
            "rejected_rows": len(self.rejected),
            REJECTED: [row.to_json() for row in self.rejected],
        }
        return {name: value for name, value in noted.items() if value}


LINES_MAX = 100
LOOK_FURTHER_LINES = 1_000_000
TEXT_MAX = 1_000
"""How many characters of a rejected record are kept."""

_MESSAGE_MAX = 600
_Row = TypeVar("_Row")


class BadLines:
    """Collects the wrong lines of one file; `lines` are those on which yielded records begin.

    If it `rejects_rows`, wrong records are rejected one by one, and the others yielded.
    """

    def __init__(self, policy: BadRecords = QUARANTINE_FILE) -> None:
        self._policy, self.rejects_rows = policy, policy.rejects_rows
        self._lines: list[BadLine] = []
        self._rejected: dict[int, BadLine] = {}
        self._texts: dict[int, str] = {}
        self._dropped = False
        self._seen = 0
        self.lines = LineMap()

    @property
    def refuses(self) -> bool:
        """Whether the file will be rejected, so that no more records are yielded."""
        return bool(self._lines)

    def has(self, line: int) -> bool:
        """Return whether the record of this line was rejected."""
        return line in self._rejected

    def wants(self, line: int) -> bool:
        """Return whether a mistake on this line would be reported."""
        if self.rejects_rows:
            return line not in self._rejected
        if len(self._lines) < LINES_MAX or line < self._lines[-1].line:
            return True
        self._dropped = True
        return False

    def add(
        self, rule: str, message: str, *, line: int, column: str | None = None, cause: str = ""
    ) -> None:
        """Note a mistake; raises `bad_records` if more records are wrong than the source allows."""
        if self.wants(line):
            short = message if len(message) <= _MESSAGE_MAX else message[:_MESSAGE_MAX] + "..."
            bad_line = BadLine(line, column, rule, short, cause[:_MESSAGE_MAX])
            if self.rejects_rows:
                self._rejected[line] = bad_line
                if len(self._rejected) > self._policy.count:
                    how_many = f"more than {self._policy.count} records are wrong"
                    raise self._too_many(how_many)
                return
            insort(self._lines, bad_line, key=lambda bad: bad.line)
            if len(self._lines) > LINES_MAX:
                self._dropped = True
                del self._lines[LINES_MAX:]

    def check(self, lines: int) -> None:
        """Raise the mistakes once there are enough; called after each batch of `lines` lines."""
        if self._lines:
            self._seen += lines
            if len(self._lines) >= LINES_MAX or self._seen > LOOK_FURTHER_LINES:
                raise self.error(more=True)

    def end(self, records: int = 0) -> tuple[BadLine, ...]:
        """Return the rejected records, by line, at the end of the file.

        Raises the mistakes if the source rejects entire files; otherwise `bad_records` if too many
        records are wrong.
        """
        if self._lines:
            raise self.error(more=self._dropped)
        count, share = len(self._rejected), self._policy.share
        if count > share * (count + records):
            how_many = (
                f"{count} of {count + records} records are wrong, but the source allows only a "
                f"share of {share:.4g}"
            )
            raise self._too_many(how_many)
        return tuple(
            replace(bad, text=self._texts.get(line, ""))
            for line, bad in sorted(self._rejected.items())
        )

    def sound(
        self,
        build: Callable[[Sequence[_Row], Sequence[int]], pa.RecordBatch | None],
        rows: Sequence[_Row],
        numbers: Sequence[int],
    ) -> pa.RecordBatch | None:
        """Return a batch of rows, without the wrong ones if the source rejects single records.

        `build` returns `None` after it has noted a mistake in at least one row.
        """
        while rows:
            if self._rejected:
                kept = [at for at, number in enumerate(numbers) if number not in self._rejected]
                if len(kept) < len(rows):
                    rows, numbers = [rows[at] for at in kept], [numbers[at] for at in kept]
                    continue
            before = len(self._rejected)
            batch = build(rows, numbers)
            if batch is not None or not self.rejects_rows:
                self.lines.add(numbers)
                return None if self.refuses else batch
            if len(self._rejected) == before:
                message = "a reader returned no batch for some rows, but noted no mistake in them"
                raise InvariantError(message)
        return None

    def textless(self) -> list[int]:
        """Return the lines of rejected records whose texts are not kept yet."""
        return sorted(self._rejected.keys() - self._texts.keys())

    def keep_text(self, line: int, text: str) -> None:
        """Keep the text of one rejected record, up to `TEXT_MAX` characters."""
        if self.rejects_rows:
            self._texts[line] = text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…"

    def _too_many(self, how_many: str) -> FileRejectedError:
        lines = [self._rejected[line] for line in sorted(self._rejected)[:LINES_MAX]]
        message = f"{how_many}. The first mistake: {lines[0].message}"
        return _error_of(lines, more=True, rule="bad_records", message=message)

    def joined(self, last: FileRejectedError) -> FileRejectedError:
        """Return the mistakes so far together with `last`, the error that ended the reading."""
        if last.lines or not self._lines:
            return last
        if last.line is not None:
            self.add(last.rule, last.message, line=last.line, column=last.column, cause=last.cause)
            return self.error(more=True)
        # The entire file is damaged: that is reported first.
        last.lines, last.lines_more = tuple(self._lines), True
        return last

    def error(self, *, more: bool) -> FileRejectedError:
        """Return the error of the earliest line; it lists all others."""
        first = self._lines[0]
        return _error_of(self._lines, more=more, rule=first.rule, message=first.message)


def _error_of(
    lines: Sequence[BadLine], *, more: bool, rule: str, message: str
) -> FileRejectedError:
    line, column, cause = lines[0].line, lines[0].column, lines[0].cause
    return FileRejectedError(
        rule, message, line=line, column=column, cause=cause, lines=tuple(lines), lines_more=more
    )


@dataclass(frozen=True, slots=True)
class Reading:
    """One file while it is read; each format's reader gets it."""

    schema: Schema
    options: ReadOptions
    limits: IngestLimits
    notes: Notes = field(default_factory=Notes)
    bad: BadLines = field(default_factory=BadLines)
    file: str = ""
