"""Connections to PostgreSQL that do not wait for ever for one that says nothing.

A server that was stopped, a lock that nobody gives up, a proxy that hangs: each takes what it is
sent and never answers. TCP finds no fault there. Guarantees: once nothing came or went over a
connection for its `answer_seconds`, whoever waits gets an `OperationalError`, the server is asked
to leave off, and the connection is closed, so that its pool opens another one.

Not guaranteed: that what was asked did not happen. Not limited: an answer that keeps coming,
however long it is. The driver may be missing: import this only where it is used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import capabilities
from psycopg.abc import PQGen

__all__ = ["PatientConnection", "unless_silent"]

CANCEL_SECONDS = 1.0
"""So long it may take to ask the server to leave off: it hangs, or the way to it does."""


class PatientConnection(psycopg.Connection[Any]):
    """A connection whose patience ends.

    Attributes:
        answer_seconds: How long it waits in silence; `None`: for ever.
    """

    answer_seconds: float | None = None

    def wait(self, gen: PQGen[Any], *args: Any, **kwargs: Any) -> Any:
        """Wait as the driver does, but not for ever; see `psycopg.Connection.wait`.

        Raises:
            OperationalError: If the server was silent for too long; the connection is closed.
        """
        seconds = self.answer_seconds
        if seconds is None:
            return super().wait(gen, *args, **kwargs)
        return super().wait(unless_silent(gen, seconds, self._give_up), *args, **kwargs)

    def _give_up(self) -> None:
        # Before version 17 libpq asks without a limit of time.
        if capabilities.has_cancel_safe():
            with suppress(psycopg.Error):
                self.cancel_safe(timeout=CANCEL_SECONDS)
        self.pgconn.finish()


def unless_silent(
    gen: PQGen[Any],
    seconds: float,
    give_up: Callable[[], None],
    clock: Callable[[], float] = time.monotonic,
) -> Generator[Any, Any, Any]:
    """Do what `gen` does until nothing came for so long; then give up.

    Args:
        gen: A conversation as the driver has it: yields what it waits for, is sent what is
            ready (nothing, several times a second, while nothing is), returns the result.
        seconds: How long nothing may be ready.
        give_up: Called once, then.
        clock: Seconds that never go back.

    Raises:
        OperationalError: If it gave up.
    """
    heard = clock()
    try:
        waits_for = next(gen)
        while True:
            ready = yield waits_for
            if ready:
                heard = clock()
            elif clock() - heard >= seconds:
                give_up()
                message = f"the server did not answer for {seconds:g} s"
                raise psycopg.OperationalError(message)
            waits_for = gen.send(ready)
    except StopIteration as end:
        return end.value
