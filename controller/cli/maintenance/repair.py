"""The command `cbp repair`: restore a table to what the service last wrote."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from controller.cli.session import AsJson
from controller.terminal import print_json, print_text

__all__ = ["repair_command"]

Table = Annotated[Path, typer.Argument(help="Folder of the table.", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def repair_command(table: Table, yes: Yes = False, json_: AsJson = False) -> None:
    """Undo what other programs wrote into a table, and put its fence back.

    Their versions stay readable in the table's history. Run `cbp resume` afterwards.
    """
    if not (yes or json_):
        question = f"What other programs wrote into {table} will no longer show. Continue?"
        typer.confirm(question, abort=True, err=True)
    # Imported here: other commands do not wait for the engine to load.
    from cbp.engine.commit.change_feed import feed_of_repair
    from cbp.engine.delta.repair import repair
    from cbp.engine.storage.files import files_for

    path = str(table.absolute())
    files, now_ms = files_for(path), int(time.time() * 1000)
    repaired = repair(path, files=files, now_ms=now_ms, feed=feed_of_repair(path, files))
    undone = [
        {"version": one.version, "operation": one.operation, "engine": one.engine}
        for one in repaired.undone
    ]
    if json_:
        print_json(
            {
                "repaired": str(table),
                "version": repaired.version,
                "shows": repaired.shows,
                "undone": undone,
            }
        )
        return
    for entry in undone:
        print_text(f"undone: version {entry['version']}, {entry['operation']} by {entry['engine']}")
    print_text(
        f"{table} shows version {repaired.shows} again, as version {repaired.version}", "green"
    )
