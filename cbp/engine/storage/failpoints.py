"""Failpoints: named points around every durable effect, where tests crash the engine.

A *fault* is a callable that gets the name of the point just passed. In production it is
`NO_FAULTS`, which does nothing. A test uses a `PlannedFaults`, which raises at one chosen passage
of one point. After the "restart", exactly what was durable before that point is found again.

Guaranteed: `POINTS` names every point of the product, `<effect>.before` and
`<effect>.after`. `PlannedFaults` refuses a name that is not in it, so no
test waits for a point that cannot come. Not guaranteed: that an in-process
crash loses unsynced writes as a power cut does.

    >>> faults = PlannedFaults("log_entry.after", error=OSError("boom"))
    >>> faults("log_entry.before")
    >>> faults("log_entry.after")
    Traceback (most recent call last):
    OSError: boom
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from cbp.errors import InvariantError

__all__ = ["EFFECTS", "NO_FAULTS", "POINTS", "Crash", "Faults", "PlannedFaults", "check_point"]

EFFECTS: tuple[str, ...] = (
    "data_file",
    "data_sync",
    "vectors_file",
    "log_entry",
    "checkpoint",
    "clean_up",
    "dead_file",
    "dead_entry",
    "dead_record",
    "snapshot",
    "intention",
    "term",
    "description",
    "generation",
    "correction",
    "claim",
    "rename",
    "increment_file",
    "source_log",
    "punctuation",
    "sql_commit",
    "job",
)
POINTS: tuple[str, ...] = tuple(
    f"{effect}.{side}" for effect in EFFECTS for side in ("before", "after")
)
_KNOWN = frozenset(POINTS)


class Faults(Protocol):
    """Called at each point; picklable, since tasks in other processes pass points too."""

    def __call__(self, point: str) -> None:
        """Pass `point`, one of `POINTS`; a fault raises here."""


def _no_faults(point: str) -> None:
    """Pass every point."""


NO_FAULTS: Faults = _no_faults


class Crash(BaseException):
    """Simulated death of the process at a point; no `except Exception` catches it."""

    ends_process = True  # so it is never reported as an author's error (`cbp.errors.cause`)


def check_point(point: str) -> None:
    """Refuse a point that no code passes.

    Raises:
        InvariantError: If `point` is not in `POINTS`.
    """
    if point not in _KNOWN:
        message = f"there is no failpoint {point!r}"
        raise InvariantError(message, point=point)


class PlannedFaults:
    """A test's faults: counts all passages and raises at the n-th passage of one point.

    Args:
        point: Where to raise; `None`: count only.
        passage: Which passage of the point raises, counted from 1.
        error: What to raise; by default a `Crash`.

    Attributes:
        passed: How often each point was reached.

    Raises:
        InvariantError: `point`, or a point passed later, is unknown.
    """

    def __init__(
        self, point: str | None = None, *, passage: int = 1, error: BaseException | None = None
    ) -> None:
        if point is not None:
            check_point(point)
        self.passed: Counter[str] = Counter()
        self._point, self._passage = point, passage
        self._error = error if error is not None else Crash(point)

    def __call__(self, point: str) -> None:
        """Count the passage and raise if it is the planned one."""
        check_point(point)
        self.passed[point] += 1
        if point == self._point and self.passed[point] == self._passage:
            raise self._error
