"""Main program of a reader: it serves the connections that the service passes to it.

It writes no table and never leads (`controller.app.reading`). A request that it would have to
refuse goes back to the service with its connection. So one process counts refusals and attempts,
and errors are answered by the process that has all information.

    start     reads the settings from standard input; reports `ready` once it can serve requests
    life      sends the counts of requests every second, which shows that it is alive
    end       on SIGTERM it finishes its requests; if the service is gone, it ends immediately
"""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

import pyarrow as pa
import uvicorn
from anyio import to_thread
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cbp.engine.workers.end_with_parent import end_with
from controller.access.authentication import Authentication
from controller.access.shared_changes import SharedChanges
from controller.api.requests.present_state import Part
from controller.api.requests.request_counts import RequestCounts
from controller.api.routing.read_routes import served_by_readers
from controller.api.routing.short_path import store_threads
from controller.app.logs import configure_logging
from controller.app.reading import ReadingService
from controller.server.readers.channel import Channel
from controller.server.readers.protocols import HAND_OVER, HeadFilter, ReaderProtocol, adopt
from controller.settings import Settings

STOP_SECONDS = 4
THREADS, STORE_THREADS = 4, 1
"""Requests that a reader serves at a time: those that read tables, and those that do not. More
threads would only compete for the interpreter. With one thread, more clients wait for the same
list, and share its answer."""

SWITCH_SECONDS = 0.001
"""Time after which a thread releases the interpreter; a look-up takes less."""

_COLLECT = (20_000, 20, 20)
"""Thresholds of the garbage collector: a request makes some thousand objects, few in cycles."""

_REPORT_SECONDS = 1.0
_NOT_FOUND = 404


def is_answered(status: int) -> bool:
    """Return whether a reader itself, not the service, sends answers with this status."""
    return status < 400 or status == _NOT_FOUND


class AnswersOnly:
    """ASGI application that answers (also 404), or passes the connection back; never refuses."""

    def __init__(
        self, app: ASGIApp, *, authentication: Authentication, changes: SharedChanges
    ) -> None:
        self._app, self._authentication, self._changes = app, authentication, changes
        self._seen = changes.count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or pass its connection back."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if (count := self._changes.count) != self._seen:
            self._seen = count
            self._authentication.forget()
        refused = False

        async def answer(message: Message) -> None:
            nonlocal refused
            if message["type"] == "http.response.start":
                status = message["status"]
                refused = not is_answered(status)
                if refused:
                    scope[HAND_OVER]()
            if not refused:
                await send(message)

        await self._app(scope, receive, answer)


class _Server(uvicorn.Server):
    """A server without a port: its connections arrive on a channel."""

    def __init__(
        self, config: uvicorn.Config, *, channel: Channel, take_counts: Callable[[], bytes]
    ) -> None:
        super().__init__(config)
        self._channel, self._take_counts = channel, take_counts

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        to_thread.current_default_thread_limiter().total_tokens = THREADS
        store_threads().total_tokens = STORE_THREADS
        loop = asyncio.get_running_loop()
        loop.add_reader(self._channel.fileno(), self._listen)
        self._channel.send(b"R")
        loop.call_later(_REPORT_SECONDS, self._report)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if sig != signal.SIGINT:  # Ctrl-C reaches all processes; the service ends the readers
            super().handle_exit(sig, frame)

    def _listen(self) -> None:
        try:
            while (message := self._channel.receive()) is not None:
                if message.connection is not None:
                    coroutine = adopt(self._protocol, message.connection, message.body)
                    task = asyncio.get_running_loop().create_task(coroutine)
                    self.server_state.tasks.add(task)
                    task.add_done_callback(self.server_state.tasks.discard)
        except EOFError:
            os._exit(0)

    def _protocol(self) -> ReaderProtocol:
        made: ReaderProtocol = self.config.http_protocol_class(  # type: ignore[assignment, call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made

    def _report(self) -> None:
        self._channel.send(b"T", self._take_counts())
        asyncio.get_running_loop().call_later(_REPORT_SECONDS, self._report)


def main(channel: int, alive: int, changes: int, questions: int) -> None:
    """Serve until the service asks to stop, or ends.

    Args:
        channel: Descriptor of the channel's end.
        alive: A pipe that closes when the service ends.
        changes: Descriptor of the count of ended tokens and sessions.
        questions: A connection to ask for the present state of the service.
    """
    end_with(alive)
    settings: Settings = pickle.load(sys.stdin.buffer)
    os.umask(int(settings.umask, 8))
    configure_logging(settings)
    asked = Connection(questions)

    def ask(part: Part) -> bytes:
        asked.send_bytes(part.encode())
        return asked.recv_bytes()

    service = ReadingService(settings, ask)
    end = Channel(socket.socket(fileno=channel))
    counts: RequestCounts = service.api.state.parts.requests
    heads = HeadFilter(served_by_readers(service.api.routes))

    def pass_back(connection: int, read: bytes) -> bool:
        return end.send(b"B", read, connection)

    members: dict[str, Any] = {"heads": heads, "pass_back": staticmethod(pass_back)}
    app = AnswersOnly(
        service.api, authentication=service.access.authentication, changes=SharedChanges(changes)
    )
    _make_ready()
    configuration = uvicorn.Config(
        app,
        http=type("_Protocol", (ReaderProtocol,), members),
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    _Server(configuration, channel=end, take_counts=lambda: counts.take(is_answered)).run(
        sockets=[]
    )


def _make_ready() -> None:
    """Do slow first-time work before the first request, so that no request waits for it."""
    pa.array([0]).to_numpy()  # makes Arrow import pandas, which takes 0.4 s
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.collect()
    gc.freeze()  # otherwise each full collection visits all imported objects
    gc.set_threshold(*_COLLECT)
