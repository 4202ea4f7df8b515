"""Phases of runs: which phase each run is in, from the moment it starts.

What is kept here is shown of a run under way. When the run ends, it is recorded with its figures
(`cbp.model.run.timeline`).

Not guaranteed: that a run is known. Only those of this process are, and of those the newest.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime

from cbp.model.run.timeline import begin_figures

__all__ = ["RunPhases"]

_RUNS_MAX = 1000
"""Far more than can be under way at a time."""


class RunPhases:
    """The phases of the newest runs; safe to use from several threads."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._runs: OrderedDict[str, tuple[datetime, list[tuple[str, float]]]] = OrderedDict()

    def begin(self, run: str, at: datetime) -> None:
        """Begin a run, in its first phase."""
        with self._lock:
            self._runs[run] = at, [("start", 0.0)]
            while len(self._runs) > _RUNS_MAX:
                self._runs.popitem(last=False)

    def enter(self, run: str, phase: str) -> None:
        """Note that a run is in another phase now; does nothing for a run that is not known."""
        now = self._clock()
        with self._lock:
            if run in self._runs:
                began_at, begins = self._runs[run]
                begins.append((phase, (now - began_at).total_seconds()))

    def figures(self, run: str) -> dict[str, float]:
        """Return when each phase of a run began, as figures; empty for a run that is not known."""
        with self._lock:
            return begin_figures(self._runs[run][1]) if run in self._runs else {}
