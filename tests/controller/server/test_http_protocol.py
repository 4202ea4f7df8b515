"""The head of a request has a time; half a head holds no connection."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import uvicorn

from controller.server.http_protocol import BoundedProtocol, ConnectionLimits, connections_max
from controller.server.readers.protocols import HeadFilter, ReaderProtocol


async def empty(scope: Any, receive: Any, send: Any) -> None:
    """Answer nothing, at length zero; to a POST once its body is there."""
    if scope["method"] == "POST":
        await receive()
    start = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]}
    await send(start)
    await send({"type": "http.response.body", "body": b""})


SHORT = ConnectionLimits(head_seconds=0.3)


class Impatient(BoundedProtocol):
    """Gives a short time for heads."""

    limits = SHORT


class ImpatientReader(ReaderProtocol):
    """The same in a reader, which serves every path."""

    heads = HeadFilter(lambda _: True)
    pass_back = staticmethod(lambda _connection, _read: False)  # type: ignore[assignment]
    limits = SHORT


@contextmanager
def serving(protocol: type[asyncio.Protocol], app: Any = empty) -> Iterator[int]:
    """Serve on a port of its own."""
    listener = socket.create_server(("127.0.0.1", 0))
    configuration = uvicorn.Config(
        app, http=protocol, lifespan="off", log_config=None, timeout_keep_alive=30
    )
    server = uvicorn.Server(configuration)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    server.should_exit = True
    thread.join(120)
    listener.close()


@pytest.fixture(params=[Impatient, ImpatientReader])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    """Give a port where heads may take a short time."""
    with serving(request.param) as port:
        yield port


@pytest.mark.parametrize("before", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_half_a_head_is_closed_in_time(port: int, before: bytes) -> None:
    """The first head of a connection as well as a later one."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as client:
        if before:
            client.sendall(before)
            assert client.recv(1000).startswith(b"HTTP/1.1 200")
        client.sendall(b"GET / HTTP/1.1\r\nHost:")
        assert client.recv(1000) == b"", "the server closes it"


MOST = 5
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
HALF = b"GET / HTTP/1.1\r\nHost:"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n"


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=120)


def is_closed(client: socket.socket) -> bool:
    """Wait until the server has closed it, in whichever way."""
    try:
        return client.recv(1000) == b""
    except ConnectionResetError:
        return True


FEW = ConnectionLimits(head_seconds=30.0, connections_max=MOST)


class Narrow(BoundedProtocol):
    """Allows few connections, with much time for heads."""

    limits = FEW


class NarrowReader(ImpatientReader):
    """The same in a reader."""

    limits = FEW


@pytest.fixture
def few() -> Iterator[int]:
    """Give a port with few connections."""
    with serving(Narrow) as port:
        yield port


@pytest.mark.parametrize("protocol", [Narrow, NarrowReader])
def test_halves_of_requests_do_not_use_up_the_connections(protocol: type[asyncio.Protocol]) -> None:
    """A whole request is served: the half goes that has waited longest."""
    with serving(protocol) as few:
        _halves(few)


def _halves(few: int) -> None:
    with ExitStack() as stack:
        halves = [stack.enter_context(connect(few)) for _ in range(MOST)]
        for half in halves:
            half.sendall(HALF)
        for gone in halves[:2]:
            whole = stack.enter_context(connect(few))
            whole.sendall(GET)
            assert whole.recv(1000).startswith(b"HTTP/1.1 200")
            assert is_closed(gone), "the server closes it"
        halves[2].sendall(b" x\r\n\r\n")
        assert halves[2].recv(1000).startswith(b"HTTP/1.1 200"), "the others may go on"


def test_where_all_are_served_one_more_is_told_so(few: int) -> None:
    """Nobody who is being served loses the connection; the new one may try again."""
    with ExitStack() as stack:
        served = [stack.enter_context(connect(few)) for _ in range(MOST)]
        for one in served:
            one.sendall(POST.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
            assert one.recv(1000).startswith(b"HTTP/1.1 100"), "its body is waited for"
        with connect(few) as more:
            more.sendall(GET)
            answer = more.recv(10_000)
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"connections_exhausted" in answer
        assert b'"title": "Service Unavailable"' not in answer
        for one in served:
            one.sendall(b"x")
            assert one.recv(1000).startswith(b"HTTP/1.1 200")


def test_connections_leave_files_to_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that may open few files takes fewer connections; never none."""
    for files, expected in [(1 << 20, 500), (400, 100), (2, 1)]:
        monkeypatch.setattr("resource.getrlimit", lambda _, f=files: (f, f))
        assert connections_max() == expected
