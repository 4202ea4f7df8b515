"""The process of the service: its HTTP server, the signals that stop it, and a time limit for that.

Guaranteed: a service that was asked to stop ends, whatever hangs in it (tests/system/test_stop.py).
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

import uvicorn

from controller.app import create_app
from controller.server.http_protocol import BoundedProtocol
from controller.settings import Settings
from controller.terminal import print_text

__all__ = ["run_server", "watchdog"]

FORCED_AFTER_SECONDS = 10.0
"""How long a stop may take beyond `drain_seconds` before it is forced."""

FORCED_STATUS = 4
"""Exit status of a service whose stop was forced."""


def run_server(settings: Settings) -> bool:
    """Run the service until a signal stops it; return whether it could start."""
    os.umask(int(settings.umask, 8))
    app = create_app(settings)
    configuration = uvicorn.Config(
        app,
        http=BoundedProtocol,
        host=settings.host,
        port=settings.port,
        log_config=None,  # the service configures the logs
        access_log=False,  # a query may hold the key of a record
        server_header=False,
        date_header=True,
        # A client that reads slowly, or never ends its body, does not delay the stop.
        timeout_graceful_shutdown=max(1, int(settings.drain_seconds)),
    )
    server = uvicorn.Server(configuration)
    end = server.handle_exit

    signals: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        if len(signals) > 1:  # a second signal: do not wait
            os._exit(128 + number)
        watchdog(settings.drain_seconds + FORCED_AFTER_SECONDS)
        # At once: the server would tell the service only after its last client has gone.
        app.state.begin_stop()
        end(number, frame)

    server.handle_exit = stop  # type: ignore[method-assign, assignment]
    # In the end the server passes the signal on to the previous handler.
    signal.signal(signal.SIGTERM, _end_well)
    server.run()
    return bool(server.started)


def watchdog(seconds: float) -> None:
    """End this process after a time, whatever hangs in it; committed work is durable."""

    def force() -> None:
        print_text(f"the service did not end within {seconds:g} s and was ended; nothing is lost")
        os._exit(FORCED_STATUS)

    timer = threading.Timer(seconds, force)
    timer.daemon = True
    timer.start()


def _end_well(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)
