"""Limits on the wrong codes and tokens of an address, and on the requests of a caller."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable

from cbp.clock import MACHINE
from controller.access.errors import TooManyAttemptsError, TooManyRequestsError

ATTEMPTS_MAX = 10
WINDOW_SECONDS = 60.0
_ADDRESSES_MAX = 1_000


class Attempts:
    """Counts wrong attempts by address, in this process."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._windows: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def check(self, address: str) -> None:
        """Raise `TooManyAttemptsError` after too many wrong attempts, even for a correct one."""
        with self._lock:
            end, wrong = self._windows.get(address, (0.0, 0))
        left = end - self._monotonic()
        if left > 0 and wrong >= ATTEMPTS_MAX:
            raise TooManyAttemptsError(math.ceil(left))

    def note_wrong(self, address: str) -> None:
        """Count a wrong attempt; the first one begins a window."""
        now = self._monotonic()
        with self._lock:
            end, wrong = self._windows.pop(address, (0.0, 0))
            if end <= now:
                end, wrong = now + WINDOW_SECONDS, 0
            self._windows[address] = end, wrong + 1
            while len(self._windows) > _ADDRESSES_MAX:
                self._windows.popitem(last=False)


BURST_SECONDS = 2.0
"""After a silence, a caller may send the requests of this many seconds in one burst."""

_CALLERS_MAX = 1_000


class RequestRates:
    """How many requests a second each caller may send (0: any number); used by one thread."""

    def __init__(self, per_second: int, monotonic: Callable[[], float] = MACHINE.seconds) -> None:
        self._per_second, self._monotonic = per_second, monotonic
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, actor: str) -> None:
        """Count a request; raise `TooManyRequestsError` beyond the limit."""
        if not self._per_second:
            return
        now, most = self._monotonic(), self._per_second * BURST_SECONDS
        left, at = self._left.pop(actor, (most, now))
        left = min(most, left + (now - at) * self._per_second)
        self._left[actor] = (max(left - 1, 0.0) if left >= 1 else left), now
        while len(self._left) > _CALLERS_MAX:
            self._left.popitem(last=False)
        if left < 1:
            raise TooManyRequestsError(actor, self._per_second)
