"""Protocols of a connection, in the service process and in a reader.

A connection belongs to one process at a time, between two requests of it:

    new             the service accepts it, and passes it to a reader
    reader          looks at each head: serves the request, or passes the connection back, with all
                    that it has read of it and nothing answered
    passed back     the service serves that request as any other, and then passes it on again

So requests are neither forwarded nor rewritten: the process that serves one has the client's
own bytes and address, and a stream or an upload never goes through another process.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, ClassVar

import h11
import structlog
import uvicorn
from starlette.types import Message
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES
from uvicorn.protocols.utils import get_local_addr, get_remote_addr
from uvicorn.server import ServerState

from controller.server.http_protocol import BoundedProtocol, ConnectionLimits, make_room
from controller.server.readers.heads import (
    HEAD_BYTES_MAX,
    HeadFilter,
    PlainRequest,
    head_length,
)

HAND_OVER = "cbp.hand_over"
"""Where a request's scope has the function that passes its connection back."""

PENDING_BYTES_MAX = 256 * 1024
_AGAIN_SECONDS = 0.01
_WITHOUT_BODY = (204, 304)

_log = structlog.get_logger(__name__)

Pass = Callable[[int, bytes], bool]
"""Passes a connection (its descriptor) with what was read of it; returns whether it was taken."""


class ServiceProtocol(BoundedProtocol):
    """A connection in the service process; a subclass knows the readers.

    Attributes:
        pass_on: Passes a connection to a reader.
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
        self._forget()
        self._unset_keepalive_if_required()
        self.transport.abort()  # closes the descriptor, and says nothing to the client
        return True


class ReaderProtocol(asyncio.Protocol):
    """A connection in a reader; a subclass knows the service.

    It reads and writes just the HTTP that a reader serves (`heads`): requests without a body. A
    general parser took a fifth of a millisecond for each, which was a fifth of all that a look-up
    took. An answer leaves in one piece, if the application makes it in one piece.

    Attributes:
        heads: Knows which requests are served here.
        pass_back: Passes a connection back to the service.
        limits: Of the connections of the reader.
    """

    heads: ClassVar[HeadFilter]
    pass_back: ClassVar[Pass]
    limits: ClassVar[ConnectionLimits] = ConnectionLimits()

    transport: asyncio.Transport
    flow: FlowControl

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.state = server_state
        self._app, self._app_state = config.loaded_app, app_state
        self._keep_seconds = config.timeout_keep_alive
        self._loop = _loop or asyncio.get_running_loop()
        self._answer: _Answer | None = None
        self._request = self._pending = b""
        self._is_left = self._stops = False
        self._timer: asyncio.TimerHandle | None = None
        self._since = self._until = 0.0
        self._waits_for_head = False

    @property
    def waits(self) -> tuple[float, bool] | None:
        """See `Bounded`."""
        if self._answer is not None or self.transport.is_closing():
            return None
        return self._since, self._waits_for_head

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first request, and make room for it."""
        assert isinstance(transport, asyncio.Transport), "a stream"
        self.transport, self.flow = transport, FlowControl(transport)
        self._server, self._client = get_local_addr(transport), get_remote_addr(transport)
        self.state.connections.add(self)  # type: ignore[arg-type]
        self._wait(self.limits.head_seconds, for_head=True)
        make_room(self, self.state.connections, self.limits)

    def data_received(self, data: bytes) -> None:
        """Take bytes; those after a request wait until it is answered."""
        self._pending += data
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting; what is being answered is told."""
        self.state.connections.discard(self)  # type: ignore[arg-type]
        if self._timer is not None:
            self._timer.cancel()
        if self._answer is not None:
            self._answer.end()
        self.flow.resume_writing()

    def pause_writing(self) -> None:
        """Wait: the client reads slowly."""
        self.flow.pause_writing()

    def resume_writing(self) -> None:
        """Go on: the client has read."""
        self.flow.resume_writing()

    def shutdown(self) -> None:
        """End the connection behind the answer under way; called by the server that stops."""
        self._stops = True
        if self._answer is None:
            self.transport.close()

    def _go_on(self) -> None:
        """Serve the next request of what was received, if it is there and the last one is done."""
        if self._is_left or self.transport.is_closing():
            return
        if self._answer is not None:
            if len(self._pending) > PENDING_BYTES_MAX:
                self.flow.pause_reading()
            return
        length = head_length(self._pending)
        if not length and len(self._pending) <= HEAD_BYTES_MAX:
            if self._pending and not self._waits_for_head:
                self._wait(self.limits.head_seconds, for_head=True)
        elif self.transport.get_write_buffer_size():  # of the answer before
            self._loop.call_later(_AGAIN_SECONDS, self._go_on)
        elif length and (request := self.heads.read(self._pending[:length])) is not None:
            self._request, self._pending = self._pending[:length], self._pending[length:]
            self._serve(request)
        else:
            self._request = b""
            self.hand_over()

    def _serve(self, request: PlainRequest) -> None:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "server": self._server,
            "client": self._client,
            "scheme": "http",
            "method": "GET",
            "root_path": "",
            "path": request.path,
            "raw_path": request.raw_path,
            "query_string": request.query,
            "headers": request.headers,
            "state": self._app_state.copy(),
            HAND_OVER: self.hand_over,
        }
        self._answer = _Answer(self, ends=request.ends)
        task = self._loop.create_task(self._answer.make(self._app, scope))
        self.state.tasks.add(task)
        task.add_done_callback(self.state.tasks.discard)

    def answered(self, *, ends: bool) -> None:
        """Go on behind an answer.

        Args:
            ends: Whether it was the last one of the connection.
        """
        self._answer, self._request = None, b""
        self.state.total_requests += 1
        if ends or self._stops:
            self.transport.close()
        elif not self.transport.is_closing():
            self.flow.resume_reading()
            self._wait(self._keep_seconds, for_head=False)
            if self._pending:
                self._loop.call_soon(self._go_on)

    def hand_over(self) -> None:
        """Pass the connection back with the request that is not answered yet."""
        if self._is_left or self.transport.is_closing():
            return
        if self._answer is not None:
            self._answer.end()  # the service answers
        read = self._request + self._pending
        if type(self).pass_back(_descriptor(self.transport), read):
            self._is_left = True
            self.transport.abort()  # closes the descriptor, and says nothing to the client
        else:
            self.flow.pause_reading()
            self._loop.call_later(_AGAIN_SECONDS, self.hand_over)

    def _wait(self, seconds: float, *, for_head: bool) -> None:
        """Close the connection after a time, unless a request is being served then."""
        self._since, self._waits_for_head = self._loop.time(), for_head
        self._until = self._since + seconds
        # One timer for many requests: it looks again when it was set too early.
        if self._timer is not None and self._timer.when() > self._until:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(self._until, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._answer is not None or self._is_left:
            return
        if self._loop.time() < self._until:
            self._timer = self._loop.call_at(self._until, self._look)
        else:
            self.transport.close()


class _Answer:
    """One request of a reader's connection being answered: the server's side of ASGI."""

    def __init__(self, protocol: ReaderProtocol, *, ends: bool) -> None:
        self._protocol, self._ends = protocol, ends
        self._start: Message | None = None
        self._over = self._chunked = self._began = self._asked = False
        self._ended: asyncio.Event | None = None

    async def make(self, app: Any, scope: dict[str, Any]) -> None:
        """Let the application answer; what it fails to answer the service answers."""
        try:
            await app(scope, self._receive, self._send)
        except Exception as error:
            _log.error("reader.failed", error=repr(error))
        if self._over:
            return
        if self._began:
            self._protocol.transport.abort()
        else:
            self._protocol.hand_over()

    def end(self) -> None:
        """Send nothing more: somebody else answers, or nobody listens."""
        self._over = True
        if self._ended is not None:
            self._ended.set()

    async def _receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        if not self._over:
            self._ended = self._ended or asyncio.Event()
            await self._ended.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if self._protocol.flow.write_paused and not self._over:
            await self._protocol.flow.drain()
        if self._over:
            return
        if message["type"] == "http.response.start":
            self._start = message
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        if not self._began:
            assert self._start is not None, "a status comes before a body"
            self._began = True
            head = self._head(self._start)
            self._protocol.transport.write(head + self._part(body, more=more))
        elif part := self._part(body, more=more):
            self._protocol.transport.write(part)
        if not more:
            self.end()
            self._protocol.answered(ends=self._ends)

    def _head(self, start: Message) -> bytes:
        """Return the head of the answer; one of unknown length is sent in chunks."""
        status, headers = start["status"], start.get("headers", [])
        names = {name.lower() for name, _ in headers}
        headers = [*self._protocol.state.default_headers, *headers]
        if b"content-length" not in names and status not in _WITHOUT_BODY:
            self._chunked = True
            headers.append((b"transfer-encoding", b"chunked"))
        if self._ends:
            headers.append((b"connection", b"close"))
        lines = b"".join([b"%b: %b\r\n" % (name, value) for name, value in headers])
        return b"HTTP/1.1 %d %b\r\n%b\r\n" % (status, STATUS_PHRASES[status], lines)

    def _part(self, body: bytes, *, more: bool) -> bytes:
        if not self._chunked:
            return body
        part = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
        return part if more else part + b"0\r\n\r\n"


async def adopt(
    make: Callable[[], ServiceProtocol | ReaderProtocol],
    connection: socket.socket,
    read: bytes = b"",
) -> None:
    """Go on with a connection that another process passed.

    Args:
        make: Makes its protocol.
        connection: The connection.
        read: What was read of it.
    """
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
