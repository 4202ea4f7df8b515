"""Clocks that are not the machine's.

`ManualClock` is handed to code of the product that takes a clock (`cbp.clock`): it does not move,
and a wait by it takes no time. The product's asynchronous code waits by the clock of its event
loop and reads no other, so a test brings a loop of its own: `play` runs a coroutine in simulated
seconds, where an hour of silence takes no time; `MovableLoop` serves real sockets, and its clock is
moved ahead.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import current_default_thread_limiter

from cbp.clock import Clock

__all__ = ["ManualClock", "MovableLoop", "play", "sleep"]

T = TypeVar("T")


class ManualClock(Clock):
    """Moves only when a test moves it, or something waits by it.

    Args:
        begins: The time at first.
        on_wait: Called in each wait, after the clock has moved: what others do meanwhile.
    """

    def __init__(
        self,
        begins: datetime = datetime(2026, 1, 1, 12, tzinfo=UTC),
        on_wait: Callable[[], object] = lambda: None,
    ) -> None:
        self._now, self._on_wait, self.moved = begins, on_wait, timedelta()
        self.waits = list[float]()

    def now(self) -> datetime:
        """Return the time."""
        return self._now + self.moved

    def seconds(self) -> float:
        """Return the seconds by which it has moved."""
        return self.moved.total_seconds()

    def wait(self, seconds: float) -> None:
        """Move by some seconds, at once."""
        self.waits.append(seconds)
        self.move(seconds=seconds)
        self._on_wait()

    def move(self, **by: float) -> None:
        """Move by some time, with the names of a `timedelta`."""
        self.moved += timedelta(**by)


def play(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in simulated seconds, which pass only while everything in it waits."""
    with asyncio.Runner(loop_factory=_SimulatedLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, _SimulatedLoop)
        runner.run(_keep_threads(loop))
        return runner.run(main)


async def sleep(seconds: float) -> None:
    """Let simulated seconds pass."""
    assert isinstance(asyncio.get_running_loop(), _SimulatedLoop), "call it in `play`"
    await asyncio.sleep(seconds)


class MovableLoop(asyncio.SelectorEventLoop):
    """A loop whose clock goes on like the machine's, and moves ahead when a test says so."""

    _ahead = 0.0

    def time(self) -> float:
        """Return the seconds of this loop."""
        return super().time() + self._ahead

    def advance(self, seconds: float) -> None:
        """Move the clock ahead, from any thread; what is due then happens at once."""
        self._ahead += seconds
        self.call_soon_threadsafe(lambda: None)


class _SimulatedLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.clock = _Clock()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now


class _Clock(selectors.DefaultSelector):
    """Where the loop would sleep until its next timer, its clock moves to that.

    Attributes:
        now: Simulated seconds.
        threads: Those that work for the loop; while some do, no time passes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.threads: CapacityLimiter | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.threads is not None and self.threads.borrowed_tokens and timeout != 0:
            return super().select(None)
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "everything waits, and nothing wakes it"
            self.now += timeout
        return ready


async def _keep_threads(loop: _SimulatedLoop) -> None:
    loop.clock.threads = current_default_thread_limiter()
