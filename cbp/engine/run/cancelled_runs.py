"""The runs that an executor was asked to end, until they notice it."""

from __future__ import annotations

import threading

CANCELLED_MAX = 10_000
"""Most runs that are remembered; one that is cancelled after its last job never notices it."""


class CancelledRuns:
    """Runs that were cancelled and have not ended; safe to use from several threads."""

    def __init__(self, most: int = CANCELLED_MAX) -> None:
        self._most, self._lock = most, threading.Lock()
        self._runs: dict[str, None] = {}

    def __contains__(self, run: str) -> bool:
        return run in self._runs

    def add(self, run: str) -> None:
        """Remember a run; if there are too many, forget the one that was cancelled first."""
        with self._lock:
            self._runs[run] = None
            if len(self._runs) > self._most:
                del self._runs[next(iter(self._runs))]

    def discard(self, run: str) -> None:
        """Forget a run, since it has ended."""
        with self._lock:
            self._runs.pop(run, None)
