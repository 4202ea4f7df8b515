"""Runs one kind of background work for every dataflow, repeatedly, in parallel.

    asked for -> waits for a place -> under way -> (asked for meanwhile) waits again

Guaranteed: the work of one dataflow never runs twice at a time. The dataflow that waits longest is
next. Slow work holds no place (`cbp.model.schedule.places`), so a device that hangs delays only its
own dataflow. `ask` never blocks (tests/controller/app/test_background_rounds.py).
Absent on purpose: timers, and what the work is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from datetime import datetime

import structlog

from cbp.model.schedule.places import ActiveRun, Places

_log = structlog.get_logger(__name__)


class Rounds:
    """Hands the work of dataflows to threads; safe to use from several threads.

    Args:
        name: Name of the work, for the log.
        work: Does the work for one dataflow; calls `stopping` from time to time if it takes long.
        executor: One thread per piece of work; nobody waits for it.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[str], None],
        *,
        executor: Executor,
        places: Places,
        clock: Callable[[], datetime],
    ) -> None:
        self._name, self._work, self._executor = name, work, executor
        self._places, self._clock = places, clock
        self._changed = threading.Condition()
        self._waiting: dict[str, None] = {}
        self._under_way: dict[str, datetime] = {}
        self._stopping = False

    def ask(self, dataflows: Iterable[str]) -> None:
        """Queue work for these dataflows, after those that wait; returns at once.

        A dataflow whose work is running is queued once more: something may have arrived since.
        """
        with self._changed:
            if self._stopping:
                return
            for dataflow in dataflows:
                self._waiting.setdefault(dataflow)
        self._start()

    def stopping(self) -> bool:
        """Return whether running work should end as soon as it can."""
        return self._stopping

    def begin(self) -> None:
        """Accept work again, once the running work has ended."""
        with self._changed:
            self._stopping = False

    def stop(self) -> None:
        """Start no more work, and tell running work to stop; returns at once."""
        with self._changed:
            self._stopping = True
            self._waiting.clear()

    def wait(self, timeout: float) -> bool:
        """Wait until no work is running; return whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._under_way, timeout)

    def _start(self) -> None:
        while (dataflow := self._next()) is not None:
            self._executor.submit(self._do, dataflow)

    def _next(self) -> str | None:
        with self._changed:
            now = self._clock()
            first = next((name for name in self._waiting if name not in self._under_way), None)
            works = [ActiveRun(name, "", since) for name, since in self._under_way.items()]
            # Each has one piece of work, so the first is as good as any.
            if first is None or self._places.next(works, [first], now) is None:
                return None
            del self._waiting[first]
            self._under_way[first] = now
            return first

    def _do(self, dataflow: str) -> None:
        try:
            self._work(dataflow)
        except Exception:  # a thread must not die: the next turn tries again
            _log.exception("round.failed", work=self._name, dataflow=dataflow)
        finally:
            with self._changed:
                del self._under_way[dataflow]
                self._changed.notify_all()
            self._start()
