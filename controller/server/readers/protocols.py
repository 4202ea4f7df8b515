"""Protocols of a connection, in the service process and in a reader.

A connection belongs to one process at a time, and changes the process only between two requests:

    new             the service accepts it, and passes it to a reader
    reader          reads each head, and serves the request, or passes the connection back
                    unanswered, with all bytes that it has read
    passed back     the service serves that request as any other, and then passes it on again

`HeadFilter` decides by the head alone which requests a reader serves, before anything else reads
it: plain GETs whose path matches a marked route (`controller/api/README.md`). The service gets the
exact bytes of all others. So two processes, which parse HTTP with two libraries, never read one
request in two ways. A head is read in linear time, since anybody may have sent it.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar
from urllib.parse import unquote

import h11

from controller.server.http_protocol import BoundedProtocol, QuickProtocol

HEAD_BYTES_MAX = 64 * 1024
"""A longer head is left to the service, which refuses it."""

_END = re.compile(rb"\n\r?\n")
_REQUEST = re.compile(rb"GET (/[!-~]*) HTTP/1\.1")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_MORE_THAN_A_HEAD = frozenset(
    (b"content-length", b"transfer-encoding", b"expect", b"upgrade", b"te", b"trailer")
)
"""Headers that announce a body or another protocol."""

_PATHS_KEPT, _KEPT_LENGTH_MAX = 1024, 256


def head_length(received: bytes) -> int:
    """Return the length of the request head at the start of these bytes; 0 if incomplete."""
    found = _END.search(received)
    return 0 if found is None else found.end()


class HeadFilter:
    """Decides which requests a reader serves; `is_served` returns whether readers serve a path."""

    def __init__(self, is_served: Callable[[str], bool]) -> None:
        self._is_served, self._known = is_served, lru_cache(_PATHS_KEPT)(is_served)

    def serves(self, head: bytes) -> bool:
        """Return whether a reader serves the request with this complete head."""
        first, *lines = head.split(b"\r\n")
        request = _REQUEST.fullmatch(first)
        if request is None or lines[-2:] != [b"", b""] or b"#" in request[1]:
            return False
        path, _, _ = request[1].partition(b"?")
        is_served = self._known if len(path) <= _KEPT_LENGTH_MAX else self._is_served
        if not is_served(unquote(path.decode("ascii"))):
            return False
        hosts = 0
        for line in lines[:-2]:
            name, colon, value = line.partition(b":")
            if not colon or not _NAME.fullmatch(name) or _CONTROL.search(value):
                return False
            if value[-1:] in (b" ", b"\t"):  # only one of the two parsers strips it
                return False
            name = name.lower()
            if name in _MORE_THAN_A_HEAD:
                return False
            hosts += name == b"host"
        return hosts == 1


HAND_OVER = "cbp.hand_over"
"""Key in a request's scope; the value is the function that passes its connection back."""

PENDING_BYTES_MAX = 256 * 1024
_AGAIN_SECONDS = 0.01

Pass = Callable[[int, bytes], bool]
"""Passes a connection's descriptor and the bytes read from it; returns whether that succeeded."""


class ServiceProtocol(BoundedProtocol):
    """A connection in the service process; a subclass knows the readers.

    Attributes:
        stays: Whether a reader passed it back, so that the next request is served here.
    """

    pass_on: ClassVar[Pass] = staticmethod(lambda _connection, _read: False)
    stays = False

    def connection_made(self, transport: Any) -> None:
        """Pass a new connection to a reader; serve it here if none is ready."""
        self.transport = transport
        if self.stays or not self._passed(b""):
            super().connection_made(transport)

    def on_response_complete(self) -> None:
        """Pass the connection on between two requests."""
        super().on_response_complete()
        waits = self.conn.our_state is h11.IDLE and self.conn.their_state is h11.IDLE
        if waits and not (self.transport.is_closing() or self.transport.get_write_buffer_size()):
            self._passed(self.conn.trailing_data[0])

    def _passed(self, read: bytes) -> bool:
        if not type(self).pass_on(_descriptor(self.transport), read):
            return False
        _leave(self)
        return True


class ReaderProtocol(QuickProtocol):
    """A connection in a reader; a subclass knows the service."""

    heads: ClassVar[HeadFilter]
    pass_back: ClassVar[Pass]

    _request = b""
    _pending = b""
    _is_left = False

    def data_received(self, data: bytes) -> None:
        """Accept bytes; bytes after a request wait until the request is answered."""
        self._pending += data
        self._go_on()

    def on_response_complete(self) -> None:
        """Continue with bytes that arrived meanwhile."""
        super().on_response_complete()
        if self._pending and not self.transport.is_closing():
            self.loop.call_soon(self._go_on)

    def send_400_response(self, msg: str) -> None:
        """Leave requests that the parser refuses to the service."""
        self._hand_over()

    def _go_on(self) -> None:
        if self._is_left or self.transport.is_closing():
            return
        if self._is_serving():
            if len(self._pending) > PENDING_BYTES_MAX:
                self.flow.pause_reading()
            return
        length = head_length(self._pending)
        if not length and len(self._pending) <= HEAD_BYTES_MAX:
            self._unset_keepalive_if_required()
            if self._head is None:
                self._expect_head()
        elif self.transport.get_write_buffer_size():  # of the answer before
            self.loop.call_later(_AGAIN_SECONDS, self._go_on)
        elif length and type(self).heads.serves(self._pending[:length]):
            self._request, self._pending = self._pending[:length], self._pending[length:]
            super().data_received(self._request)
            if self._is_serving():
                scope: dict[str, Any] = self.scope  # type: ignore[assignment]
                scope[HAND_OVER] = self._hand_over
        else:
            self._request = b""
            self._hand_over()

    def _hand_over(self) -> None:
        """Pass the connection back with the request that is not answered yet."""
        if self._is_left:
            return
        if self._is_serving():
            self.cycle.disconnected = True  # the service answers, if the client is still there
        if self.transport.is_closing():
            return
        read = self._request + self._pending
        if type(self).pass_back(_descriptor(self.transport), read):
            self._is_left = True
            _leave(self)
        else:
            self.flow.pause_reading()
            self.loop.call_later(_AGAIN_SECONDS, self._hand_over)


async def adopt(
    make: Callable[[], BoundedProtocol | QuickProtocol],
    connection: socket.socket,
    read: bytes = b"",
) -> None:
    """Continue with a connection of another process; `read` has the bytes read so far."""
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    try:
        _, protocol = await loop.connect_accepted_socket(make, connection)
    except OSError:  # the client is gone
        connection.close()
        return
    if read:
        protocol.data_received(read)


def _descriptor(transport: Any) -> int:
    descriptor: int = transport.get_extra_info("socket").fileno()
    return descriptor


def _leave(protocol: BoundedProtocol | QuickProtocol) -> None:
    """Close this process's descriptor of a connection that another one has now."""
    protocol._forget()
    protocol._unset_keepalive_if_required()
    protocol.transport.abort()  # closes the descriptor, and says nothing to the client
