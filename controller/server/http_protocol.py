"""HTTP protocol of `cbp serve`: uvicorn's, with limits on connections and on the time for a head.

A client that sends half of a request head and then nothing would hold a connection for ever.
Enough such clients, without any token, would use up all file descriptors of this process, and the
service could open no file any more. So a head has a time limit. If there are too many connections,
the one that has waited longest for a head is closed. So complete requests are served, however many
clients send halves. Only if all connections are being served, a new one is answered with 503.
"""

from __future__ import annotations

import asyncio
import json
import resource
import time
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["CONNECTIONS_MAX", "HEAD_SECONDS", "BoundedProtocol", "connections_max"]

HEAD_SECONDS = 10.0
CONNECTIONS_MAX = 500
_SHARE_OF_FILES = 4

_FULL = {
    "type": "urn:cbp:error:connections_exhausted",
    "title": "Service Unavailable",
    "status": 503,
    "detail": "too many concurrent requests; try again",
    "error_code": "connections_exhausted",
    "message": "too many concurrent requests; try again",
    "details": {},
}


def connections_max() -> int:
    """Return the limit of connections: a share of the files that a process may open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return max(1, min(CONNECTIONS_MAX, files // _SHARE_OF_FILES))


class BoundedProtocol(H11Protocol):
    """Closes a connection whose next request is late, or to make room for another connection."""

    _head: asyncio.TimerHandle | None = None
    _waits_since = 0.0

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request, and make room for it."""
        super().connection_made(transport)
        self._expect_head()
        if len(self.connections) > connections_max():
            self._make_room()

    def _make_room(self) -> None:
        others = [one for one in self.connections if isinstance(one, BoundedProtocol)]
        idle = [one for one in others if one is not self and one._may_go()]
        if idle:
            min(idle, key=lambda one: (one._head is None, one._waits_since)).transport.abort()
            return
        body = json.dumps(_FULL).encode()
        head = (
            "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\n"
            f"Content-Length: {len(body)}\r\nRetry-After: 5\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request; they do not restart the time limit."""
        super().data_received(data)
        if self._is_serving():
            self._forget()
        elif self._head is None:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting for a request."""
        self._forget()
        super().connection_lost(exc)

    def _may_go(self) -> bool:
        return not self._is_serving() and not self.transport.is_closing()

    def _is_serving(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _expect_head(self) -> None:
        self._waits_since = time.monotonic()
        self._head = self.loop.call_later(HEAD_SECONDS, self._too_late)

    def _too_late(self) -> None:
        self._head = None
        if not self._is_serving():
            self.transport.close()

    def _forget(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None
