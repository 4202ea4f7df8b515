"""The command `cbp demo`: the main job on real input; see `controller.demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from controller.cli.session import Session

Keep = Annotated[bool, typer.Option("--keep", help="Leave the service running.")]
Root = Annotated[
    Path | None, typer.Option(help="Create the working folder in this folder, and keep it.")
]
Increments = Annotated[
    int, typer.Option(min=1, max=100, help="Number of increments before the last one.")
]
Engine = Annotated[Literal["spark", "local"], typer.Option(help="`local` needs no Spark.")]
Modules = Annotated[
    int | None, typer.Option("--limit", min=1, help="Maximum number of modules to read.")
]
Stdlib = Annotated[bool, typer.Option("--stdlib", help="Read the standard library too.")]
Port = Annotated[
    int,
    typer.Option(
        min=1,
        max=65535,
        envvar="CBP_PORT",
        help="Port of the service; if it is in use, the demo takes another one.",
    ),
]


def demo_command(
    session: Session,
    keep: Keep = False,
    root: Root = None,
    increments: Increments = 5,
    engine: Engine = "spark",
    limit: Modules = None,
    stdlib: Stdlib = False,
    port: Port = 8420,
) -> None:
    """Run the crawl queue over the installed Python packages, and check every table."""
    # Imported here: `cbp --help` does not wait for the demo to load.
    from controller.demo import CheckFailedError, DemoOptions, run_demo

    options = DemoOptions(
        keep=keep,
        root=root,
        as_json=session.as_json,
        increments=increments,
        engine=engine,
        limit=limit,
        stdlib=stdlib,
        port=port,
    )
    try:
        run_demo(options)
    except CheckFailedError:
        if not session.as_json:
            raise
        # The printed document says which check failed: print no second one.
        raise typer.Exit(1) from None
