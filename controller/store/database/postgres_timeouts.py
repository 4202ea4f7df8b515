"""PostgreSQL connections with a time limit for silence.

A stopped server, a lock that is never released, a proxy that hangs: each accepts what is sent and
never answers, and TCP reports no fault. Guarantees: after `answer_seconds` without any traffic on a
connection, the waiting caller gets a `ServerSilentError`, the server is asked to cancel, and the
connection is closed, so that its pool opens another one.

Not guaranteed: that the statement did not take effect. Not limited: an answer that keeps coming,
however long it is. The driver may not be installed: import this module only where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import capabilities
from psycopg.abc import PQGen

from cbp.clock import MACHINE

CANCEL_SECONDS = 1.0
"""Time limit of the cancel request, since the server or the network may still hang."""


class ServerSilentError(psycopg.OperationalError):
    """The server was silent for too long; the statement may have taken effect."""

    is_silence = True


class TimedConnection(psycopg.Connection[Any]):
    """A connection that waits for `answer_seconds` while nothing arrives; `None` means forever."""

    answer_seconds: float | None = None

    def wait(self, gen: PQGen[Any], *args: Any, **kwargs: Any) -> Any:
        """Wait like `psycopg.Connection.wait`; raises `ServerSilentError`."""
        seconds = self.answer_seconds
        if seconds is None:
            return super().wait(gen, *args, **kwargs)
        return super().wait(unless_silent(gen, seconds, self._give_up), *args, **kwargs)

    def _give_up(self) -> None:
        # Before version 17, libpq's cancel request has no time limit.
        if capabilities.has_cancel_safe():
            with suppress(psycopg.Error):
                self.cancel_safe(timeout=CANCEL_SECONDS)
        self.pgconn.finish()


def unless_silent(
    gen: PQGen[Any],
    seconds: float,
    give_up: Callable[[], None],
    clock: Callable[[], float] = MACHINE.seconds,
) -> Generator[Any, Any, Any]:
    """Run `gen` until no event was ready for `seconds`; then give up. Raises `ServerSilentError`.

    Args:
        gen: A generator of the driver: it yields the events that it waits for, is sent the
            events that are ready (several times a second, even if there are none), and returns
            the result.
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
                raise ServerSilentError(message)
            waits_for = gen.send(ready)
    except StopIteration as end:
        return end.value
