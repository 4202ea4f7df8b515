"""Slow clients, over real sockets: they hold up themselves and nobody else."""

from __future__ import annotations

import asyncio
import json
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import uvicorn

from controller.app import create_app
from controller.client.service_client import ServiceClient
from controller.server.service_process import free_port
from controller.settings import Settings, load_settings
from tests.controller.small_app import DOCUMENT, TOKEN
from tests.controller.world import until
from tests.simulated_time import MovableLoop

# More than starlette has threads for all of its routes.
SLOW = 45
UPLOADS_MAX = 4
REQUESTS = 8
WAIT_SECONDS = 120.0
IDLE_SECONDS = 600.0


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[tuple[Settings, MovableLoop]]:
    """Run the service on a port, with a registered dataflow, and give the clock of its server."""
    settings = load_settings(
        root=tmp_path,
        port=free_port(),
        engine="local",
        reader_processes=False,
        worker_processes=False,
        token=TOKEN,
        settle_seconds=0,
        scan_seconds=0.1,
        tick_seconds=0.1,
        drain_seconds=5,
        uploads_max=UPLOADS_MAX,
        client_idle_seconds=IDLE_SECONDS,
    )
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(settings), port=settings.port, log_config=None, timeout_graceful_shutdown=1
        )
    )
    loop = MovableLoop()
    thread = threading.Thread(target=_serve, args=(server, loop))
    thread.start()
    try:
        until(lambda: server.started)
        with ServiceClient(settings) as client:
            document = json.dumps(DOCUMENT).encode()
            client.post("dataflows", content=document, content_type="application/json")
        yield settings, loop
    finally:
        server.should_exit = True
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()


def test_slow_uploads_and_slow_readers_hold_up_nobody(
    serving: tuple[Settings, MovableLoop],
) -> None:
    """More of both than there are threads: reading, dropping and counting go on meanwhile."""
    settings, _ = serving
    with ExitStack() as stack, ServiceClient(settings) as client:
        slow = [stack.enter_context(connect(settings)) for _ in range(SLOW)]
        for number, one in enumerate(slow):
            one.sendall(upload_head(number, bytes_=10_000) + b'{"url": "a"}\n')
        readers = [stack.enter_context(connect(settings, buffer=4096)) for _ in range(SLOW)]
        for one in readers:
            # Asks again and again and reads nothing: its answers pile up until it is not served.
            one.sendall(head("GET", "openapi.json") * REQUESTS)
        incoming = settings.drop_root / "urls" / "visits" / "incoming"
        (incoming / "f.part").write_text('{"url": "b"}\n')
        (incoming / "f.part").rename(incoming / "f.jsonl")  # else it may be taken in while empty
        until(lambda: client.get("dataflows", "urls")["stages"][0]["epoch"] == 1)
        assert client.get("dataflows", "urls", "increments")["items"][0]["records"] == 1


def test_a_client_that_sends_nothing_is_given_up_and_leaves_nothing(
    serving: tuple[Settings, MovableLoop],
) -> None:
    """408 after `client_idle_seconds`; the next upload gets its place, and is taken.

    The bounds themselves: tests/controller/api/requests/test_body.py.
    """
    settings, loop = serving
    incoming = settings.drop_root / "urls" / "visits" / "incoming"
    with ExitStack() as stack, ServiceClient(settings) as client:
        slow = [stack.enter_context(connect(settings)) for _ in range(UPLOADS_MAX)]
        for number, one in enumerate(slow):
            one.sendall(upload_head(number, bytes_=1000) + b"{")

        def all_given_up() -> bool:
            loop.advance(IDLE_SECONDS)
            return len(select.select(slow, [], [], 0)[0]) == len(slow)

        until(all_given_up)
        for one in slow:
            said = answer_of(one)
            assert b" 408 " in said.partition(b"\r\n")[0]
            assert b"client_too_slow" in said
        path = ("dataflows", "urls", "sources", "visits", "files")
        answer = client.post(*path, content=b'{"url": "c"}\n', query={"name": "quick.jsonl"})
        assert answer["path"] == "quick.jsonl"
        until(lambda: client.get("dataflows", "urls")["stages"][0]["epoch"] == 1)
        until(lambda: list(incoming.iterdir()) == [])


def _serve(server: uvicorn.Server, loop: MovableLoop) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(server.serve())


def connect(settings: Settings, *, buffer: int | None = None) -> socket.socket:
    """Connect; with a small buffer, what is not read piles up at the service."""
    made = socket.socket()
    if buffer is not None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    made.settimeout(WAIT_SECONDS)
    made.connect(("127.0.0.1", settings.port))
    return made


def answer_of(one: socket.socket) -> bytes:
    """Read an answer to its end, however it is cut into pieces."""
    said = b""
    while not said.endswith(b"}}"):
        piece = one.recv(65_536)
        assert piece, said
        said += piece
    return said


def head(method: str, path: str, *more: str) -> bytes:
    lines = [
        f"{method} /api/v1/{path} HTTP/1.1",
        "Host: 127.0.0.1",
        f"Authorization: Bearer {TOKEN}",
        *more,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def upload_head(number: int, *, bytes_: int) -> bytes:
    path = f"dataflows/urls/sources/visits/files?name=slow-{number}.jsonl"
    return head("POST", path, f"Content-Length: {bytes_}")
