"""Ids of runs: they sort by time, over restarts too."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from controller.store.base import Store

# Milliseconds since 1970 in hexadecimal; 12 digits last 8000 years.
TIME_DIGITS = 12


class RunIds:
    """Gives ids; used under the lock of the tick.

    Args:
        random_hex: Returns this many random bytes in hexadecimal.
    """

    def __init__(
        self, *, store: Store, clock: Callable[[], datetime], random_hex: Callable[[int], str]
    ) -> None:
        self._store, self._clock, self._random_hex = store, clock, random_hex
        self._last_id_ms = 0

    def new_id(self) -> str:
        """Return an id that sorts by time, also within a millisecond.

        It sorts after the ids of the previous process, even if the clock was set back:
        attempts and failures are counted in this order.
        """
        if not self._last_id_ms:
            newest = self._store.runs(limit=1).items
            self._last_id_ms = int(newest[0].id[:TIME_DIGITS], 16) if newest else 0
        self._last_id_ms = max(int(self._clock().timestamp() * 1000), self._last_id_ms + 1)
        return f"{self._last_id_ms:0{TIME_DIGITS}x}{self._random_hex(4)}"
