"""The time limit of a run: a longer run is cancelled, and given up if it does not end.

    under way --limit--> cancelled: asked to stop --patience--> given up

The limit of a run is `run_seconds_max` of its stage, or else of the service. Work that an operator
cancels is given up in the same way. Work that is given up frees its stage: nothing waits for its
thread, which cannot be ended, and its result is not recorded.

Guaranteed: work whose result is being recorded is never given up
(tests/controller/loop/runs/test_time_limit.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import structlog

from controller.loop.runs.in_flight import InFlight, Work
from controller.loop.runs.isolation import Isolation

GIVE_UP_SECONDS = 30.0
"""Seconds that a cancelled run may take to end before it is given up."""

GIVE_UP_SHARE, GIVE_UP_SECONDS_MIN = 0.25, 1.0
"""A late run has this share of its time limit to end: with a limit of 8 s it is 10 s in all."""

TIMED, FREED = "checked for runs over their time limit", "freed from a run that did not end"

_log = structlog.get_logger(__name__)


@dataclass
class TimeLimit:
    """Enforces the time limits of the work in flight; used only by the thread that ticks."""

    in_flight: InFlight
    isolation: Isolation
    clock: Callable[[], datetime]
    wake: Callable[[], None]

    def keep(self) -> None:
        """Cancel work beyond its time limit; give up cancelled work that does not end."""
        now = self.clock()
        for work in self.in_flight.all():
            with structlog.contextvars.bound_contextvars(**work.log_fields):
                self.isolation.attempt(work.key[0], TIMED, partial(self._keep, work, now))

    def _keep(self, work: Work, now: datetime) -> None:
        if work.give_up is None or work.recording:
            return
        if work.cancelled_at is not None:
            waited = (now - work.cancelled_at).total_seconds()
            if waited >= _patience(work) and self.in_flight.free(work):
                # If this fails, the run is still recorded as intended; it is settled later.
                self.isolation.attempt(work.key[0], FREED, partial(work.give_up, work))
                self.wake()
        elif work.seconds_max and (now - work.since).total_seconds() >= work.seconds_max:
            _log.warning("run.over_time_limit", **work.log_fields)
            work.late = True
            self.in_flight.cancel(work.run)


def _patience(work: Work) -> float:
    if not work.late:
        return GIVE_UP_SECONDS
    return min(GIVE_UP_SECONDS, max(GIVE_UP_SECONDS_MIN, work.seconds_max * GIVE_UP_SHARE))
