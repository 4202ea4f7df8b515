"""The faults of a simulation: every passage of a failpoint is traced, and some of them fail."""

from __future__ import annotations

import errno
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from cbp.engine.faults import Crash, check_point
from cbp.errors import DiskFullError, OperatingError

__all__ = ["PowerLoss", "Strikes"]

# Where the product calls the operating system itself, it gets what that would raise.
_ON_DISK_BY_PORT = ("sql_commit", "job", "intention")


class PowerLoss(Crash):
    """Death of the machine: what was not synced is gone."""


class Strikes:
    """Faults that strike in turn; each once.

    Args:
        trace: Told every passage and every strike.

    Attributes:
        passed: How often each point was passed.
        struck: Kinds that struck since it was last emptied.
    """

    def __init__(self, trace: Callable[[str], None]) -> None:
        self.passed: Counter[str] = Counter()
        self.struck: list[str] = []
        self._trace = trace
        self._due: deque[tuple[str, str, int]] = deque()
        self._since = 0

    def plan(self, kind: str, point: str, nth: int) -> None:
        """Let the n-th passage of a point fail, once the faults before it have struck."""
        if point != "*":
            check_point(point)
        self._due.append((kind, point, nth))

    def clear(self) -> None:
        """Strike no more."""
        self._due.clear()
        self._since = 0

    def __call__(self, point: str) -> None:
        check_point(point)
        self.passed[point] += 1
        self._trace(f"    . {point}")
        if not self._due:
            return
        kind, wanted, nth = self._due[0]
        self._since += wanted in ("*", point)
        if wanted not in ("*", point) or self._since < nth:
            return
        self._due.popleft()
        self._since = 0
        if kind == "unknown" and not point.endswith(".after"):
            kind = "eio"
        self.struck.append(kind)
        self._trace(f"    ! {kind} at {point}")
        raise _error(kind, point)


def _error(kind: str, point: str) -> BaseException:
    if kind == "power":
        return PowerLoss(point)
    if kind == "crash":
        return Crash(point)
    if not point.startswith(_ON_DISK_BY_PORT):
        number = errno.ENOSPC if kind == "enospc" else errno.EIO
        return OSError(number, "injected", point)
    if kind == "enospc":
        return DiskFullError(point)
    message = f"injected at {point}"
    details: dict[str, Any] = {"point": point}
    return OperatingError(message, **details)
