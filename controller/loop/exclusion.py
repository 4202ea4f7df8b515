"""One at a time on a dataflow: what registers, changes, amends, deletes or reads files for it.

Whoever asks over REST waits for its turn. The thread that ticks never does: a large file may be
read for minutes, and it serves the other dataflows too. It tries, and leaves a dataflow that is
taken to a later tick; where that goes on for long, the log says who has it.

Guaranteed: `attempt` never blocks (tests/controller/test_exclusion.py).
Not guaranteed: an order among those that wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

__all__ = ["LONG_SECONDS", "Exclusion"]

LONG_SECONDS = 60.0
"""Who has a dataflow for longer is named in the log, once, when something else wants it."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Turn:
    """Of one dataflow: its lock, and who has it since when, the first one first."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    holders: list[tuple[str, float]] = field(default_factory=list)
    told: bool = False


class Exclusion:
    """Gives the turns; the same thread may take one again.

    Args:
        monotonic: Seconds that never go back.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._guard, self._monotonic = threading.Lock(), monotonic
        self._turns: dict[str, _Turn] = {}

    @contextmanager
    def hold(self, name: str, purpose: str) -> Iterator[None]:
        """Wait until nobody else works on a dataflow, and keep others from it.

        Args:
            name: The dataflow.
            purpose: What is done meanwhile, in words that follow its name: "is deleted".
        """
        turn = self._turn(name)
        with turn.lock, self._entered(turn, purpose):
            yield

    @contextmanager
    def attempt(self, name: str, purpose: str) -> Iterator[bool]:
        """Do as `hold` does, if nobody else works on the dataflow; yield whether that is so."""
        turn = self._turn(name)
        if not turn.lock.acquire(blocking=False):
            self._tell(name, turn, purpose)
            yield False
            return
        try:
            with self._entered(turn, purpose):
                yield True
        finally:
            turn.lock.release()

    def _turn(self, name: str) -> _Turn:
        with self._guard:
            return self._turns.setdefault(name, _Turn())

    @contextmanager
    def _entered(self, turn: _Turn, purpose: str) -> Iterator[None]:
        turn.holders.append((purpose, self._monotonic()))
        try:
            yield
        finally:
            turn.holders.pop()
            turn.told = turn.told and bool(turn.holders)

    def _tell(self, name: str, turn: _Turn, purpose: str) -> None:
        # The first one: what it does inside has other names. It may be gone by now.
        because, since = next(iter(turn.holders), ("", self._monotonic()))
        seconds = self._monotonic() - since
        if seconds >= LONG_SECONDS and not turn.told:
            turn.told = True
            figures = {"holder": because, "seconds": round(seconds), "waits": purpose}
            _log.warning("dataflow.taken_for_long", dataflow=name, **figures)
