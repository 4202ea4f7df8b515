"""HTTP protocol of `cbp serve`: uvicorn's, with limits on connections and on the time for a head.

A client that sends half of a request head and then nothing would hold a connection for ever.
Enough such clients, without any token, would use up all file descriptors of this process, and the
service could no longer open a file. So a head has a time limit. If there are too many connections,
the one that has waited longest for a head is closed. So complete requests are served, however many
clients send halves. Only if all connections are being served, a new one is answered with 503.
"""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from uvicorn.protocols.http.h11_impl import H11Protocol

from controller.api.answers.problems import MEDIA_TYPE
from controller.api.security.guard import SECURITY_HEADERS

CONNECTIONS_MAX = 500
_SHARE_OF_FILES = 4

_FULL = {
    "type": "urn:cbp:error:connections_exhausted",
    "title": "All connections are in use",
    "status": 503,
    "detail": "too many concurrent requests; try again",
    "error_code": "connections_exhausted",
    "message": "too many concurrent requests; try again",
    "details": {},
}

_INVALID = {
    "type": "urn:cbp:error:request_refused",
    "title": "The request is not HTTP",
    "status": 400,
    "detail": "the bytes are not an HTTP/1.1 request, or its head is too large",
    "error_code": "request_refused",
    "message": "the bytes are not an HTTP/1.1 request, or its head is too large",
    "details": {},
}


def connections_max() -> int:
    """Return the limit of connections: a share of the files that a process may open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return max(1, min(CONNECTIONS_MAX, files // _SHARE_OF_FILES))


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of the connections of one port.

    Attributes:
        head_seconds: How long the head of a request may take.
        connections_max: Number of connections; `None` means as the open files of the process allow.
    """

    head_seconds: float = 10.0
    connections_max: int | None = None


class Bounded(Protocol):
    """A connection of a port with limits.

    Attributes:
        waits: While it may be closed, as no request of it is being served: since when it waits (by
            the loop's clock), and whether that is for a head, which goes first.
    """

    transport: asyncio.Transport

    @property
    def waits(self) -> tuple[float, bool] | None:
        """See above."""


def make_room(this: Bounded, connections: Collection[Any], limits: ConnectionLimits) -> None:
    """Close a connection if there are too many: the one that waits longest, or else the new one.

    Args:
        this: The new one.
        connections: All of the port, with the new one; each is `Bounded`.
        limits: How many there may be.
    """
    most = limits.connections_max
    if len(connections) <= (connections_max() if most is None else most):
        return
    others: Iterable[Bounded] = (one for one in connections if one is not this)
    waiting = [(not waits[1], waits[0], one) for one in others if (waits := one.waits) is not None]
    if waiting:
        _, _, longest = min(waiting, key=lambda each: each[:2])
        longest.transport.abort()
    else:
        refuse(this.transport, "503 Service Unavailable", _FULL, **{"Retry-After": "5"})


def refuse(
    transport: asyncio.Transport, status: str, document: Mapping[str, Any], **more: str
) -> None:
    """Answer without the application, with the headers that its answers have; then close."""
    body = json.dumps(document).encode()
    headers = {
        "Content-Type": MEDIA_TYPE,
        "Content-Length": str(len(body)),
        "Connection": "close",
        **SECURITY_HEADERS,
        **more,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    transport.write(f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body)
    transport.close()


class BoundedProtocol(H11Protocol):
    """Closes a connection whose next request is late, or to make room for another connection.

    uvicorn constructs it, so a subclass sets other limits.
    """

    limits = ConnectionLimits()

    _head: asyncio.TimerHandle | None = None
    _waits_since = 0.0

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request, and make room for it."""
        super().connection_made(transport)
        self._expect_head()
        make_room(self, self.connections, self.limits)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not a request of HTTP, which the application never sees."""
        refuse(self.transport, "400 Bad Request", _INVALID)

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

    @property
    def waits(self) -> tuple[float, bool] | None:
        """See `Bounded`."""
        if self._is_serving() or self.transport.is_closing():
            return None
        return self._waits_since, self._head is not None

    def _is_serving(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _expect_head(self) -> None:
        self._waits_since = self.loop.time()
        self._head = self.loop.call_later(self.limits.head_seconds, self._too_late)

    def _too_late(self) -> None:
        self._head = None
        if not self._is_serving():
            self.transport.close()

    def _forget(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None
