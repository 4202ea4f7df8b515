"""A limit for guesses: how many wrong codes and tokens one address may send."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable

from controller.access.errors import TooManyAttemptsError

ATTEMPTS_MAX = 10
WINDOW_SECONDS = 60.0
_ADDRESSES_MAX = 1_000


class Attempts:
    """Counts wrong attempts by address, in this process.

    Args:
        monotonic: A clock in seconds that is never set.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._windows: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def check(self, address: str) -> None:
        """Raise `TooManyAttemptsError` if an address has sent too many; also for a right one."""
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
