"""The command `cbp serve`: starts the service."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import threading
from types import FrameType
from typing import Annotated, Any

import typer

from controller.cli.errors import PortTakenError
from controller.cli.output import print_json, print_text
from controller.cli.session import AsJson, session
from controller.settings import Settings, load_settings

__all__ = ["check_port", "serve_command"]

STARTUP_FAILURE = 3
"""Exit status of a service that could not start; the same as uvicorn's."""

FORCED_AFTER_SECONDS = 10.0
"""How long a stop may take beyond `drain_seconds` before it is forced."""

FORCED_STATUS = 4
"""Exit status of a service whose stop was forced."""

Host = Annotated[str | None, typer.Option(help="Address to listen on.", show_default=False)]
Port = Annotated[
    int | None, typer.Option(min=1, max=65535, help="Port to listen on.", show_default=False)
]


def serve_command(
    context: typer.Context, host: Host = None, port: Port = None, json_: AsJson = False
) -> None:
    """Start the service and run it until it is told to stop (Ctrl-C or SIGTERM).

    Told to stop, it starts no more runs; those under way, and requests, may end within
    `drain_seconds`, then they are cancelled and run again after the next start. It ends
    with status 0 then; with 4, some 10 s later, if something hung. Told a second time, it ends
    at once.
    """
    values: dict[str, Any] = {"host": host, "port": port}
    chosen = {name: value for name, value in values.items() if value is not None}
    settings = load_settings(**chosen) if chosen else session(context).settings
    check_port(settings.host, settings.port)
    settings.ensure_token()
    _say_where(settings, as_json=json_)
    _run(settings)


def check_port(host: str, port: int) -> None:
    """Raise `PortTakenError` if the service could not listen there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        # Like uvicorn: a port whose last connections are still closing is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            raise PortTakenError(host, port, error.strerror or str(error)) from error


def _say_where(settings: Settings, *, as_json: bool) -> None:
    where = {
        "url": settings.url,
        "token_file": str(settings.token_file),
        "drop_root": str(settings.drop_root),
        "tables": settings.tables,
    }
    if as_json:
        print_json(where)
        return
    given = settings.token is not None
    print_text(f"service       {where['url']}")
    print_text(f"token         {'from CBP_TOKEN' if given else 'in ' + where['token_file']}")
    print_text(f"drop folders  {where['drop_root']}/<dataflow>/<source>/incoming")
    print_text(f"tables        {where['tables']}")


def _run(settings: Settings) -> None:
    """Run the service; its imports are here, since other commands need neither it nor Spark."""
    os.umask(int(settings.umask, 8))
    uvicorn = importlib.import_module("uvicorn")
    protocol = importlib.import_module("controller.cli.http_protocol").BoundedProtocol
    app = importlib.import_module("controller.app").create_app(settings)
    configuration = uvicorn.Config(
        app,
        http=protocol,
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

    told: list[int] = []

    def told_to_stop(number: int, frame: FrameType | None) -> None:
        told.append(number)
        if len(told) > 1:  # a second signal: do not wait
            os._exit(128 + number)
        watchdog(settings.drain_seconds + FORCED_AFTER_SECONDS)
        # At once: the server would tell the service only after its last client has gone.
        app.state.begin_stop()
        end(number, frame)

    server.handle_exit = told_to_stop
    # In the end the server passes the signal on to the previous handler.
    signal.signal(signal.SIGTERM, _end_well)
    server.run()
    if not server.started:
        raise typer.Exit(code=STARTUP_FAILURE)


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
