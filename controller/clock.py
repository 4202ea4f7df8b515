"""The service's clock and timers, on a machine whose clock may be set.

    the machine's clock    goes on              this clock does, too
                           is set ahead         this clock follows
                           is set back          this clock runs at half speed until they meet
                           back by over a day   this clock follows: it was wrong before

So a pause, a time limit or an idle time that this clock measures takes at most twice as long as
set. Times that outlive the process are compared as `cbp.model.schedule.backoff.Rest`.

Guaranteed (tests/controller/loop/runs/test_clock.py): no moment is before an earlier one, except
after a correction by over a day; safe to use from several threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

import structlog

LEAD_MAX = timedelta(days=1)

_PACE = 0.5
_LOGGED_SECONDS = 1.0

_log = structlog.get_logger(__name__)


class SteadyClock:
    """Returns the time, aware and in UTC; see the module header.

    `seconds` returns seconds that never go back and that go on while the machine sleeps.
    """

    def __init__(self, wall: Callable[[], datetime], seconds: Callable[[], float]) -> None:
        self._wall, self._seconds = wall, seconds
        self._lock = threading.Lock()
        self._last, self._at, self._ahead = wall(), seconds(), False

    def __call__(self) -> datetime:
        """Return the time."""
        with self._lock:
            wall, at = self._wall(), self._seconds()
            held = self._last + timedelta(seconds=max(0.0, at - self._at) * _PACE)
            lead = held - wall
            self._last = held if timedelta(0) < lead <= LEAD_MAX else wall
            self._at = at
            self._log_lead(lead)
            return self._last

    def _log_lead(self, lead: timedelta) -> None:
        ahead = lead > timedelta(seconds=_LOGGED_SECONDS if not self._ahead else 0)
        if ahead and not self._ahead:
            _log.warning("clock.set_back", seconds=round(lead.total_seconds(), 1))
        self._ahead = ahead and lead <= LEAD_MAX


def bring_forward(jobs: Iterable[Any], now: datetime) -> None:
    """After the clock was set back, start jobs that are due later than two intervals from now.

    APScheduler's jobs use the machine's clock, as does `now`. Jobs without an interval stay as is.
    """
    for job in jobs:
        interval = getattr(job.trigger, "interval", None)
        if interval is None or job.next_run_time is None:
            continue
        if job.next_run_time - now > 2 * interval:
            job.modify(next_run_time=now)
