"""A reader's connection: the HTTP that it speaks itself, and what it leaves to the service."""

from __future__ import annotations

import http.client
import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, ClassVar
from urllib.parse import unquote

import pytest

from controller.server.readers.protocols import (
    HAND_OVER,
    PENDING_BYTES_MAX,
    HeadFilter,
    ReaderProtocol,
)
from tests.controller.server.test_http_protocol import connect, serving

HEAD = b"Host: x\r\nX-Twice: a\r\nX-Twice:  b c\r\n"


async def told(scope: Any, receive: Any, send: Any) -> None:
    """Answer with what was asked; `/large` in parts, `/refused` not at all."""
    if scope["path"] == "/refused":
        scope[HAND_OVER]()
    headers = [(b"content-type", b"text/plain")]
    body = f"{scope['path']} {scope['query_string']!r} {scope['headers']}".encode()
    parts = [body] if scope["path"] != "/large" else [b"x" * 100_000] * 20
    if len(parts) == 1:
        headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for number, part in enumerate(parts):
        more = number + 1 < len(parts)
        await send({"type": "http.response.body", "body": part, "more_body": more})


class Reader(ReaderProtocol):
    """Serves every path but `/other`, and keeps what it passes back."""

    heads = HeadFilter(lambda path: path != "/other")
    passed: ClassVar[list[bytes]] = []
    takes: ClassVar[list[bool]] = []

    @staticmethod
    def pass_back(  # type: ignore[override]
        connection: int, read: bytes
    ) -> bool:
        """Take a connection, unless `takes` says otherwise; what it gets is answered with `!`."""
        if Reader.takes and not Reader.takes.pop():
            return False
        Reader.passed.append(read)
        with socket.socket(fileno=os.dup(connection)) as mine:
            mine.sendall(b"!")
        return True


@pytest.fixture
def port() -> Iterator[int]:
    """Give the port of a reader."""
    Reader.passed.clear()
    Reader.takes.clear()
    with serving(Reader, told) as port:
        yield port


@contextmanager
def client_of(port: int) -> Iterator[http.client.HTTPConnection]:
    """Give a client that knows HTTP better than this test does."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
        yield connection


def answer_of(client: socket.socket) -> bytes:
    """Read an answer of `told`, whose head and body may come apart."""
    said = b""
    while not said.endswith(b"]"):
        said += client.recv(10_000)
    return said


def test_answers_are_read_by_others(port: int) -> None:
    """One after the other on a connection, whole or in parts; then it ends as the client asks."""
    with client_of(port) as client:
        for path in ("/a%20b?c=d", "/large", "/e"):
            client.request("GET", path, headers={"X-Own": "1"})
            answer = client.getresponse()
            content = answer.read()
            assert answer.status == 200
            assert answer.getheader("Date")
            assert len(content) == 2_000_000 or content.startswith(path[:2].encode())
        client.request("GET", "/f", headers={"Connection": "close"})
        answer = client.getresponse()
        assert answer.getheader("Connection") == "close"
        assert answer.read().startswith(b"/f")
        assert client.sock is None


def test_the_application_gets_what_was_sent(port: int) -> None:
    """The path decoded, the query as it is, each header with its name in lower case."""
    with connect(port) as client:
        client.sendall(b"GET /a%20b?c=%20 HTTP/1.1\r\n" + HEAD + b"\r\n")
        said = answer_of(client)
    assert b"/a b b'c=%20'" in said
    assert b"[(b'host', b'x'), (b'x-twice', b'a'), (b'x-twice', b'b c')]" in said


@pytest.mark.parametrize(
    "target",
    ["//a//b", "/a?b?c=d&e=/", "/;a=1?", "/%2F%00%ff", "/a|b", '/"x"<y>^`{}?|"<>^`{}\\', "/a:1@b"],
)
def test_a_target_is_read_as_the_service_reads_it(port: int, target: str) -> None:
    """The path ends at the first question mark; whatever else is in it is a letter."""
    path, _, query = target.partition("?")
    with connect(port) as client:
        client.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        said = answer_of(client).decode(errors="replace")
    assert said.partition("\r\n\r\n")[2] == f"{unquote(path)} {query.encode()!r} [(b'host', b'x')]"


def test_requests_at_once_are_answered_in_their_order(port: int) -> None:
    """However they are cut into pieces; more than is read ahead waits at the client."""
    one = b"GET /%d HTTP/1.1\r\n" + HEAD + b"X-Long: " + b"x" * 20_000 + b"\r\n\r\n"
    every = b"".join(one % number for number in range(40))
    assert len(every) > 2 * PENDING_BYTES_MAX
    with connect(port) as client:
        client.sendall(every[:100])
        client.sendall(every[100:-1])
        client.sendall(every[-1:] + b"GET /last HTTP/1.1\r\nConnection: Close\r\n" + HEAD + b"\r\n")
        said = b"".join(iter(lambda: client.recv(65_536), b""))
    assert said.count(b"HTTP/1.1 200 OK\r\n") == 41
    places = [said.index(b"\r\n\r\n/%d " % number) for number in range(40)]
    assert places == sorted(places)


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /other HTTP/1.1\r\n" + HEAD + b"\r\n",
        b"GET /refused HTTP/1.1\r\n" + HEAD + b"\r\n",
        b"POST /a HTTP/1.1\r\n" + HEAD + b"Content-Length: 3\r\n\r\nabc",
        b"GET /a HTTP/1.1\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n",
        b"\r\n\r\n",
    ],
)
def test_what_is_left_to_the_service_arrives_whole(port: int, request_: bytes) -> None:
    """With all that came behind it, and nothing answered; also if the service takes it late."""
    behind = b"GET /a HTTP/1.1\r\nHost:"
    Reader.takes[:] = [True, False, False]
    with connect(port) as client:
        client.sendall(b"GET /a HTTP/1.1\r\n" + HEAD + b"\r\n")
        assert answer_of(client).startswith(b"HTTP/1.1 200")
        client.sendall(request_ + behind)
        assert client.recv(10_000) == b"!"
    assert Reader.passed == [request_ + behind]


def test_a_head_without_an_end_is_left_to_the_service(port: int) -> None:
    """It refuses what is longer than a head may be."""
    with connect(port) as client:
        client.sendall(b"GET /a HTTP/1.1\r\nX: " + b"x" * 70_000)
        assert client.recv(10_000) == b"!"
    assert len(Reader.passed[0]) > 64 * 1024


def test_heads_are_read_in_time_that_grows_with_their_length(port: int) -> None:
    """Spaces, colons and line ends by the thousands cost no more than letters."""
    for filler in (b" ", b":", b"\t ", b"a:\r\n", b"\n"):
        head = b"GET /a HTTP/1.1\r\nHost: x\r\nX:" + filler * (60_000 // len(filler))
        with connect(port) as client:
            client.sendall(head + b"\x00\r\n\r\n")
            assert client.recv(10_000) == b"!"


class Later:
    """A loop that keeps what it is to call later."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def call_later(self, _seconds: float, act: Any) -> None:
        """Keep a call."""
        self.calls.append(act)


class Cycle:
    """A request that is being served."""

    response_complete = disconnected = False


class Connection:
    """A transport, and its flow control."""

    closing = False

    def is_closing(self) -> bool:
        """Return whether the client has gone."""
        return self.closing

    def get_extra_info(self, _name: str) -> Any:
        """Return a socket that is closed."""
        with socket.socket() as closed:
            return closed

    def pause_reading(self) -> None:
        """Do nothing."""


def test_a_connection_that_ends_is_not_passed_back_again_and_again() -> None:
    """A service that is full makes the reader try again, but only while there is a connection."""
    Reader.takes[:] = [False, False]
    reader: Any = Reader.__new__(Reader)
    reader.loop, reader.cycle = Later(), None
    reader.transport = reader.flow = Connection()
    reader._hand_over()
    assert len(reader.loop.calls) == 1
    reader.transport.closing = True
    reader.loop.calls.pop()()
    assert reader.loop.calls == []


def test_a_request_whose_client_has_gone_is_not_answered_by_the_reader() -> None:
    """Nor is it passed back, or logged by uvicorn as an application that did not answer."""
    reader: Any = Reader.__new__(Reader)
    reader.transport, reader.cycle = Connection(), Cycle()
    reader.transport.closing = True
    reader._hand_over()
    assert reader.cycle.disconnected
