"""Executors without a pool: one daemon thread per piece of work, or the caller's thread.

The code that submits work limits how much runs at a time (`cbp.model.schedule.scheduler`, the
framer). A pool would keep a slot for work that hangs, and would keep the process from ending.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


class Threads(Executor):
    """Starts each piece of work at once, in a separate thread."""

    def __init__(self, name: str) -> None:
        self._name, self._lock = name, threading.Lock()
        self._count, self._stopped = 0, False
        self._futures: set[Future[Any]] = set()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Start `fn` and return its future.

        Raises `RuntimeError` after `shutdown`, or if no thread can be started.
        """
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._stopped:
                message = "no more work is accepted, because the service is stopping"
                raise RuntimeError(message)
            self._count += 1
            self._futures.add(future)
            name = f"{self._name}_{self._count}"
        future.add_done_callback(self._forget)
        work = (future, fn, args, kwargs)
        try:
            threading.Thread(target=_work, args=work, name=name, daemon=True).start()
        except RuntimeError:  # the process cannot have more threads
            self._forget(future)
            raise
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more work; with `wait`, return when all started work has ended."""
        with self._lock:
            self._stopped, futures = True, list(self._futures)
        for future in futures if wait else ():
            future.exception()

    def _forget(self, future: Future[Any]) -> None:
        with self._lock:
            self._futures.discard(future)


class Here(Executor):
    """Does each piece of work at once, in the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Return a completed future; raises a `BaseException` that is not an `Exception`."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # it belongs to the reader of the future
            future.set_exception(error)
        return future


def _work(future: Future[Any], fn: Callable[..., Any], args: Any, kwargs: Any) -> None:
    try:
        result = fn(*args, **kwargs)
    except BaseException as error:  # whatever it is, it belongs to the reader of the future
        future.set_exception(error)
    else:
        future.set_result(result)
