"""Rounds: one kind of work at every dataflow, again and again, beside the others.

    asked for -> waits for a place -> under way -> (asked for meanwhile) waits again

Guaranteed: never twice at a time at one dataflow; whoever waits longest is next, and what
is slow holds no place (`cbp.model.places`), so a device that hangs delays its own dataflow;
`ask` never blocks (tests/controller/ingest/test_rounds.py).
Absent on purpose: timers, and what the work is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from datetime import datetime

import structlog

from cbp.model.places import Places, Taken

__all__ = ["Rounds"]

_log = structlog.get_logger(__name__)


class Rounds:
    """Hands the work of dataflows to threads; safe to use from several threads.

    Args:
        name: Of the work, for the log.
        work: Does it at one dataflow; what takes long asks `stopping` now and then.
        executor: One thread per piece of work; nobody waits for it.
        places: How many go on at a time.
        clock: Returns the time, aware and in UTC.
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
        """Let these have their turn, behind those that wait; returns at once.

        One that is under way has another turn behind it: something may have come since.
        """
        with self._changed:
            if self._stopping:
                return
            for dataflow in dataflows:
                self._waiting.setdefault(dataflow)
        self._start()

    def stopping(self) -> bool:
        """Tell whether what is under way is to end as soon as it can."""
        return self._stopping

    def begin(self) -> None:
        """Take work again, once what was under way has ended."""
        with self._changed:
            self._stopping = False

    def stop(self) -> None:
        """Start nothing more, and let what is under way know; returns at once."""
        with self._changed:
            self._stopping = True
            self._waiting.clear()

    def wait(self, timeout: float) -> bool:
        """Wait until nothing is under way any more; tell whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._under_way, timeout)

    def _start(self) -> None:
        while (dataflow := self._next()) is not None:
            self._executor.submit(self._do, dataflow)

    def _next(self) -> str | None:
        with self._changed:
            now = self._clock()
            first = next((name for name in self._waiting if name not in self._under_way), None)
            taken = [Taken(name, "", since) for name, since in self._under_way.items()]
            # With one piece of work each, the first is as good as any other one.
            if first is None or self._places.next(taken, [first], now) is None:
                return None
            del self._waiting[first]
            self._under_way[first] = now
            return first

    def _do(self, dataflow: str) -> None:
        try:
            self._work(dataflow)
        except Exception:  # the last resort of a thread: its next turn tries again
            _log.exception("round.failed", work=self._name, dataflow=dataflow)
        finally:
            with self._changed:
                del self._under_way[dataflow]
                self._changed.notify_all()
            self._start()
