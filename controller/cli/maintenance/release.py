"""The command `cbp release`: remove the fence of a table, for good."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from controller.cli.session import AsJson
from controller.terminal import print_json, print_text

__all__ = ["release_command"]

Table = Annotated[Path, typer.Argument(help="Folder of the table.", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def release_command(table: Table, yes: Yes = False, json_: AsJson = False) -> None:
    """Let other programs write to a table; the service never writes it again.

    Runs that are recorded and not published yet are published first.
    """
    if not (yes or json_):
        question = (
            f"Other programs may then write to {table}; the service no longer will. Continue?"
        )
        typer.confirm(question, abort=True, err=True)
    path = str(table.absolute())
    # Imported here: other commands do not wait for the engine to load.
    from cbp.engine.commit.release import hand_over
    from cbp.engine.storage.files import files_for

    version = hand_over(path, files=files_for(path), now_ms=int(time.time() * 1000))
    if json_:
        print_json({"released": str(table), "version": version})
    else:
        print_text(f"{table} is released, from version {version} on", "green")
