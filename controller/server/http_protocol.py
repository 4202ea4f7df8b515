"""HTTP protocol of `cbp serve`: uvicorn's, with limits on connections and on the time for a head.

Clients that send half of a request head and then nothing would use up all file descriptors of this
process, without any token, and it could no longer open a file. So a head has a time limit. If there
are too many connections, the one that has waited longest for a head is closed. If all of them are
being served, the new one gets a 503.
"""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from controller.api.answers.problems import MEDIA_TYPE
from controller.api.security.guard import SECURITY_HEADERS

CONNECTIONS_MAX = 500
_SHARE_OF_FILES = 4


def _problem(code: str, status: int, title: str, message: str) -> dict[str, Any]:
    return {
        "type": f"urn:cbp:error:{code}",
        "title": title,
        "status": status,
        "detail": message,
        "error_code": code,
        "message": message,
        "details": {},
    }


_FULL = _problem(
    "connections_exhausted",
    503,
    "All connections are in use",
    "too many concurrent requests; try again",
)
_INVALID = _problem(
    "request_refused",
    400,
    "The request is not HTTP",
    "the bytes are not an HTTP/1.1 request, or its head is too large",
)


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
        connections_max: `None` derives it from the process's limit of open files.
    """

    head_seconds: float = 10.0
    connections_max: int | None = None


class _Bounded(asyncio.Protocol):
    """Closes connections: one whose next request is late, or one to make room for another.

    A mixin for uvicorn's protocols, whichever parser of HTTP they use. uvicorn constructs the
    class, so a subclass sets other limits.
    """

    limits = ConnectionLimits()

    connections: Any
    cycle: Any
    loop: asyncio.AbstractEventLoop
    transport: Any

    _head: asyncio.TimerHandle | None = None
    _waits_since = 0.0

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request, and make room for it."""
        super().connection_made(transport)
        self._expect_head()
        most = self.limits.connections_max
        if len(self.connections) > (connections_max() if most is None else most):
            self._make_room()

    def _make_room(self) -> None:
        others = [one for one in self.connections if isinstance(one, _Bounded)]
        idle = [one for one in others if one is not self and one._may_go()]
        if idle:
            min(idle, key=lambda one: (one._head is None, one._waits_since)).transport.abort()
            return
        self._refuse("503 Service Unavailable", _FULL, **{"Retry-After": "5"})

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not an HTTP request; the application never sees them."""
        self._refuse("400 Bad Request", _INVALID)

    def _refuse(self, status: str, document: Mapping[str, Any], **more: str) -> None:
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
        self.transport.write(f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body)
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Receive bytes of a request; they do not restart the time limit."""
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


class BoundedProtocol(_Bounded, H11Protocol):
    """A connection with limits, for any valid HTTP."""


class QuickProtocol(_Bounded, HttpToolsProtocol):
    """A connection with limits whose requests are parsed in C.

    httptools accepts requests that h11 refuses (two `Host` headers, none, control characters),
    so only plain requests may use it (`controller.server.readers.protocols`).
    """
