"""Locks of dataflows: one registration, change, amendment, deletion or file intake at a time.

A REST request waits for the lock. The thread that ticks never waits: reading a large file may
take minutes, and that thread serves the other dataflows too. It tries the lock, and leaves a
dataflow that is locked to a later tick. If a dataflow stays locked for long, the log names the
holder.

Guaranteed: `attempt` blocks no longer than its caller says, by default not at all
(tests/controller/loop/runs/test_dataflow_locks.py).
Not guaranteed: an order among waiting threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from cbp.clock import MACHINE

LONG_SECONDS = 60.0
"""After this many seconds the log names a holder, once, if something else waits for the lock."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Turn:
    """The lock of one dataflow, with its holders and since when; the outermost holder is first."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    holders: list[tuple[str, float]] = field(default_factory=list)
    warned: bool = False


class DataflowLocks:
    """The locks of all dataflows; reentrant in the same thread."""

    def __init__(self, monotonic: Callable[[], float] = MACHINE.seconds) -> None:
        self._guard, self._monotonic = threading.Lock(), monotonic
        self._turns: dict[str, _Turn] = {}

    @contextmanager
    def hold(self, name: str, purpose: str) -> Iterator[None]:
        """Wait for the lock of a dataflow, and hold it.

        Args:
            purpose: The caller's action, as the log shows it after the dataflow: "is deleted".
        """
        turn = self._turn(name)
        with turn.lock, self._entered(turn, purpose):
            yield

    @contextmanager
    def attempt(self, name: str, purpose: str, *, seconds: float = 0.0) -> Iterator[bool]:
        """Like `hold`, but wait no longer than `seconds`; yield whether the lock was free."""
        turn = self._turn(name)
        if not turn.lock.acquire(timeout=seconds):
            self._warn(name, turn, purpose)
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
            turn.warned = turn.warned and bool(turn.holders)

    def _warn(self, name: str, turn: _Turn, purpose: str) -> None:
        # Name the outermost holder, not what it calls. It may have released the lock by now.
        because, since = next(iter(turn.holders), ("", self._monotonic()))
        seconds = self._monotonic() - since
        if seconds >= LONG_SECONDS and not turn.warned:
            turn.warned = True
            figures = {"holder": because, "seconds": round(seconds), "waits": purpose}
            _log.warning("dataflow.locked_for_long", dataflow=name, **figures)
