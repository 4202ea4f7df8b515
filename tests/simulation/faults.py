"""The faults of a simulation: every passage of a failpoint is traced, and some of them fail."""

from __future__ import annotations

import errno
import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cbp.errors import DiskFullError, OperatingError
from tests.planned_faults import Crash, check_point
from tests.simulation.standstill import Standstill

__all__ = ["STANDS", "STATEMENT", "PowerLoss", "Strikes"]

STANDS = ("stall", "suspend")
"""Kinds that let work halt; `suspend` is a machine whose clock halts, too."""

STATEMENT = "statement"
"""No failpoint: behind any statement of a transaction that writes."""

NEVER_STANDS = ("sql_commit.before",)
"""Inside a transaction: PostgreSQL ends it, SQLite has one process."""

# Where the product calls the operating system itself, it gets what that would raise.
_ON_DISK_BY_PORT = ("sql_commit", "job", "intention")


class PowerLoss(Crash):
    """Death of the machine: what was not synced is gone."""


class Strikes:
    """Faults that strike in turn; each once.

    Args:
        trace: Called with every passage and every strike.

    Attributes:
        passed: How often each point was passed.
        struck: Kinds that struck since it was last emptied.
        work: What may stand still.
    """

    def __init__(self, trace: Callable[[str], None]) -> None:
        self.passed: Counter[str] = Counter()
        self.struck: list[str] = []
        self.work: Standstill | None = None
        self._trace = trace
        self._due: list[_Planned] = []

    def plan(self, kind: str, point: str, nth: int) -> None:
        """Let the n-th passage of a point from now on fail."""
        if point not in ("*", STATEMENT):
            check_point(point)
        self._due.append(_Planned(kind, point, nth))

    @property
    def stalls(self) -> bool:
        """Whether the next piece of work may stand still."""
        return any(planned.kind in STANDS for planned in self._due)

    def clear(self) -> None:
        """Strike no more."""
        self._due.clear()

    def __call__(self, point: str) -> None:
        """Count a passage, and raise what is due."""
        check_point(point)
        self.passed[point] += 1
        self._trace(f"    . {point}")
        self._strike(point, ("*", point))

    def statement(self) -> None:
        """Pass the end of a statement inside a writing transaction, and raise what is due."""
        self._strike(STATEMENT, (STATEMENT,))

    def _strike(self, point: str, names: tuple[str, ...]) -> None:
        for planned in self._due:
            planned.left -= planned.point in names
        due = next((planned for planned in self._due if self._is_due(planned, point)), None)
        if due is None:
            return
        self._due.remove(due)
        if due.kind in STANDS and self.work is not None:
            self._trace(f"    ! {due.kind} at {point}")
            self.work.kind = due.kind
            return self.work.stand()
        # An effect that did not happen yet is no unknown outcome.
        kind = "eio" if due.kind == "unknown" and point.endswith(".before") else due.kind
        self.struck.append(kind)
        self._trace(f"    ! {kind} at {point}")
        raise _error(kind, point)

    def _is_due(self, planned: _Planned, point: str) -> bool:
        if planned.left > 0 or (planned.point == STATEMENT) != (point == STATEMENT):
            return False
        if planned.kind not in STANDS:
            return True
        return point not in NEVER_STANDS and self.work is not None and self.work.inside()


@dataclass(slots=True, eq=False)
class _Planned:
    kind: str
    point: str
    left: int


def _error(kind: str, point: str) -> BaseException:
    if kind == "power":
        return PowerLoss(point)
    if kind == "crash":
        return Crash(point)
    if point == STATEMENT:
        return sqlite3.OperationalError("injected")
    if not point.startswith(_ON_DISK_BY_PORT):
        number = errno.ENOSPC if kind == "enospc" else errno.EIO
        return OSError(number, "injected", point)
    if kind == "enospc":
        return DiskFullError(point)
    message = f"injected at {point}"
    details: dict[str, Any] = {"point": point}
    return OperatingError(message, **details)
