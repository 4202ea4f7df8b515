"""The port to time: a clock reads it, and waits.

Code that needs the time or a pause takes a `Clock`, or one of its methods, as a parameter; the
default is `MACHINE`. Only this module asks the machine (tests/test_clocks.py). A test passes its
own clock, whose waits take no time (tests/simulated_time.py).

Asynchronous code has a port already, the clock of its event loop.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock:
    """The machine's clock; safe to use from several threads."""

    def now(self) -> datetime:
        """Return the time, aware and in UTC; it may be set back."""
        return datetime.now(UTC)

    def now_ms(self) -> int:
        """Return the time in milliseconds since 1970."""
        return (self.now() - _EPOCH) // timedelta(milliseconds=1)

    def seconds(self) -> float:
        """Return seconds that never go back; only their differences mean something."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Return after some seconds."""
        time.sleep(seconds)


MACHINE = Clock()
