"""The process of the service: its HTTP server, the signals that stop it, and a time limit for that.

Guaranteed: a service that was asked to stop ends, whatever hangs in it (tests/system/test_stop.py).
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType

import uvicorn
from fastapi import FastAPI

from controller.access.shared_changes import SharedChanges
from controller.api.requests.present_state import OwnState
from controller.api.routing.dependencies import Parts
from controller.app import create_app
from controller.registry import Registry
from controller.server.readers.protocols import ServiceProtocol, adopt
from controller.server.readers.supervisor import ReaderSupervisor, readers_count
from controller.server.tls import TlsFiles
from controller.settings import Settings
from controller.terminal import print_text

FORCED_AFTER_SECONDS = 10.0
"""How long a stop may take beyond `drain_seconds` before it is forced."""

SWITCH_SECONDS = 0.001
"""Time after which a thread releases the interpreter, here and in readers. To answer a reader, this
process needs the interpreter several times, and with Python's 5 ms each time would take that long
while other threads are busy."""

FORCED_STATUS = 4
"""Exit status of a service whose stop was forced."""


def run_server(
    settings: Settings,
    sign_in_code: str = "",
    announce: Callable[[Registry], None] = lambda _: None,
) -> bool:
    """Run the service until a signal stops it; return whether it could start.

    Args:
        sign_in_code: Signs a browser in once, as the admin; `""` if there is none.
        announce: Called with the service's translators once its database is open, so that the
            address is not printed if that fails.
    """
    os.umask(int(settings.umask, 8))
    sys.setswitchinterval(SWITCH_SECONDS)
    tls = None
    if settings.tls_cert is not None and settings.tls_key is not None:
        tls = TlsFiles(settings.tls_cert, settings.tls_key)
    app = create_app(settings, sign_in_code)
    announce(app.state.registry)
    configuration = uvicorn.Config(
        app,
        http=ServiceProtocol,
        host=settings.host,
        port=settings.port,
        log_config=None,  # the service configures the logs
        access_log=False,  # a query may contain the key of a record
        server_header=False,
        date_header=True,
        # A client that reads slowly, or never ends its body, does not delay the stop.
        timeout_graceful_shutdown=max(1, int(settings.drain_seconds)),
        ssl_context_factory=None if tls is None else lambda *_: tls.context,
    )
    server = _Server(configuration, _readers(settings, app))
    end = server.handle_exit

    signals: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        if len(signals) > 1:  # a second signal: do not wait
            os._exit(128 + number)
        watchdog(settings.drain_seconds + FORCED_AFTER_SECONDS)
        # Called here, since the server would call it only after the last client has disconnected.
        app.state.begin_stop()
        end(number, frame)

    server.handle_exit = stop  # type: ignore[method-assign, assignment]
    # In the end the server passes the signal on to the previous handler.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ended = threading.Event()
    if tls is not None:
        tls.watch(ended)
    server.run()
    ended.set()
    return bool(server.started)


class _Server(uvicorn.Server):
    """A server that passes its connections to readers, if there are any."""

    def __init__(self, config: uvicorn.Config, readers: ReaderSupervisor | None) -> None:
        super().__init__(config)
        self._readers = readers

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._readers is not None:
            members = {"pass_on": staticmethod(self._readers.pass_on)}
            self.config.http_protocol_class = type("_Protocol", (ServiceProtocol,), members)
        # Otherwise each full garbage collection visits all imported objects, which stops all
        # threads for a tenth of a second; many waiting files cause many collections.
        gc.freeze()
        await super().startup(sockets)
        if self._readers is not None and self.started:
            self._readers.start(partial(adopt, self._protocol_that_stays))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._readers is not None:
            await self._readers.stop()
        await super().shutdown(sockets)

    def _protocol_that_stays(self) -> ServiceProtocol:
        made: ServiceProtocol = self.config.http_protocol_class(  # type: ignore[assignment, call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        made.stays = True
        return made


def _readers(settings: Settings, app: FastAPI) -> ReaderSupervisor | None:
    """Return the readers that the settings ask for, not started; `None` if they ask for none."""
    linux = sys.platform == "linux"
    count = readers_count(settings, cores=os.cpu_count() or 1, linux=linux)
    if not count:
        return None
    parts: Parts = app.state.parts
    changes, descriptor = SharedChanges.make()
    parts.access.authentication.on_forget = changes.note
    state, store = OwnState(parts.controller, parts.drop_folder), parts.store
    return ReaderSupervisor(
        settings,
        count=count,
        changes=descriptor,
        counts=parts.requests,
        describe=lambda part: state.describe(
            part, lambda: [record.name for record in store.dataflows()]
        ),
    )


def watchdog(seconds: float) -> None:
    """End this process after a time, even if it hangs; committed work is durable."""

    def force() -> None:
        print_text(f"the service did not stop within {seconds:g} s and was killed; nothing is lost")
        os._exit(FORCED_STATUS)

    timer = threading.Timer(seconds, force)
    timer.daemon = True
    timer.start()
