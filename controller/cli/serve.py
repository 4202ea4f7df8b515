"""The command `cbp serve`: starts the service."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from cbp.errors.masks import mask_credentials
from controller.cli.session import AsJson, session
from controller.server.port import check_port
from controller.settings import Settings, load_settings
from controller.terminal import print_json, print_text

__all__ = ["serve_command"]

STARTUP_FAILURE = 3
"""Exit status of a service that could not start; the same as uvicorn's."""

Host = Annotated[str | None, typer.Option(help="Address to listen on.", show_default=False)]
Port = Annotated[
    int | None, typer.Option(min=1, max=65535, help="Port to listen on.", show_default=False)
]


def serve_command(
    context: typer.Context, host: Host = None, port: Port = None, json_: AsJson = False
) -> None:
    """Start the service, and run it until Ctrl-C or SIGTERM.

    On the first signal the service starts no more runs. Requests and runs have `drain_seconds`
    to finish; runs that take longer are cancelled, and run again after the next start. The exit
    status is 0. If something still hangs 10 seconds later, the process is ended with status 4.
    A second signal ends it at once. No stop loses committed work.
    """
    values: dict[str, Any] = {"host": host, "port": port}
    chosen = {name: value for name, value in values.items() if value is not None}
    settings = load_settings(**chosen) if chosen else session(context).settings
    check_port(settings.host, settings.port)
    # First of all: the folder of the token may be the first that is made.
    os.umask(int(settings.umask, 8))
    settings.ensure_token()
    _say_where(settings, as_json=json_)
    # Imported here: it loads the whole service, which no other command needs.
    from controller.server.process import run_server

    if not run_server(settings):
        raise typer.Exit(code=STARTUP_FAILURE)


def _say_where(settings: Settings, *, as_json: bool) -> None:
    where = {
        "url": settings.url,
        "token_file": str(settings.token_file),
        "drop_root": str(settings.drop_root),
        "tables": mask_credentials(settings.tables),
    }
    if as_json:
        print_json(where)
        return
    given = settings.token is not None
    print_text(f"service       {where['url']}")
    print_text(f"token         {'from CBP_TOKEN' if given else 'in ' + where['token_file']}")
    print_text(f"drop folders  {where['drop_root']}/<dataflow>/<source>/incoming")
    print_text(f"tables        {where['tables']}")
