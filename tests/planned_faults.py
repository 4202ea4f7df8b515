"""Planned faults: a test's process dies, or an effect fails, at one passage of one failpoint.

After the "restart", exactly what was durable before that point is there again. An in-process crash
loses no unsynced writes, as a loss of power does (`tests/system/power`).

    >>> faults = PlannedFaults("log_entry.after", error=OSError("boom"))
    >>> faults("log_entry.before")
    >>> faults("log_entry.after")
    Traceback (most recent call last):
    OSError: boom
"""

from __future__ import annotations

from collections import Counter

from cbp.engine.storage.failpoints import POINTS
from cbp.errors import InvariantError

__all__ = ["Crash", "PlannedFaults", "check_point"]

_KNOWN = frozenset(POINTS)


class Crash(BaseException):
    """Simulated death of the process at a point; no `except Exception` catches it."""

    ends_process = True  # so it is never reported as an author's error (`cbp.errors.author_cause`)


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
