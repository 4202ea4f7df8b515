"""Work that halts in the middle, as a stopped process does, and may go on later.

It runs in a thread of its own, but threads take turns: what lets it go on waits until it
has ended or halts. So one runs at a time, and a seed still determines everything.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Standstill"]

SECONDS_MAX = 120.0
"""Then it waits for something that only another thread could give: a mistake."""


class _AbandonedError(BaseException):
    """Nobody will let the work go on."""


class Standstill:
    """A piece of work; `go_on` begins it too.

    Attributes:
        done: Whether it has ended.
        error: What ended it, if anything did.
        kind: Why it halts.
    """

    def __init__(self, work: Callable[[], object]) -> None:
        self.done, self.error = False, None  # type: bool, BaseException | None
        self._work, self.kind = work, ""
        self._mine, self._others = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._abandoned = False

    def go_on(self) -> None:
        """Let it go on; return once it has ended or halts."""
        if self._thread.ident is None:
            self._thread.start()
        self._mine.release()
        if not self._others.acquire(timeout=SECONDS_MAX):
            message = "work neither ends nor stands still"
            raise AssertionError(message)

    def inside(self) -> bool:
        """Tell whether this is asked by the work itself."""
        return threading.current_thread() is self._thread

    def stand(self) -> None:
        """Stand still; called by the work itself, returns when it goes on."""
        self._others.release()
        self._mine.acquire()
        if self._abandoned:
            raise _AbandonedError

    def abandon(self) -> None:
        """End its thread where it halts: the play is over."""
        if self._thread.is_alive():
            self._abandoned = True
            self._mine.release()
            self._thread.join(SECONDS_MAX)

    def _run(self) -> None:
        self._mine.acquire()
        try:
            self._work()
        except BaseException as error:  # handed to what lets it go on
            self.error = error
        self.done = True
        self._others.release()
