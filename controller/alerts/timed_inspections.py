"""Inspects folders in threads, since a file system whose server is gone may never answer.

Guaranteed: an inspection that hangs delays its callers once, by its time limit, and has one thread
(tests/controller/alerts/test_disk_room.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from controller.loop.runs.threads import Threads

INSPECTION_SECONDS = 1.0
"""A folder that does not answer within this time is left out until it does."""

_Folder = TypeVar("_Folder", bound=Hashable)
_Found = TypeVar("_Found")


@dataclass(eq=False)
class TimedInspections(Generic[_Folder, _Found]):
    """Inspects folders in threads; safe to use from several threads.

    A call raises the errors of the inspection. It raises `TimeoutError` after `seconds`, and at
    once while an earlier inspection still hangs.
    """

    inspect: Callable[[_Folder], _Found]
    seconds: float = INSPECTION_SECONDS
    _threads: Threads = field(default_factory=lambda: Threads("disk"))
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _under_way: dict[_Folder, Future[_Found]] = field(default_factory=dict)
    _late: set[_Folder] = field(default_factory=set)

    def __call__(self, folder: _Folder, seconds: float | None = None) -> _Found:
        """Return the result of inspecting a folder; `seconds` replaces the time limit."""
        with self._lock:
            future = self._under_way.get(folder)
            if future is None:
                future = self._under_way[folder] = self._threads.submit(self.inspect, folder)
            elif folder in self._late and not future.done():
                raise TimeoutError(folder)
        try:
            # The result of an inspection that ended after the last call gave up still counts, once.
            return future.result(self.seconds if seconds is None else seconds)
        finally:
            with self._lock:
                if not future.done():
                    self._late.add(folder)
                elif self._under_way.get(folder) is future:
                    del self._under_way[folder]
                    self._late.discard(folder)
