"""The command `cbp repair`: restore a table to what the service last wrote."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import Annotated

import typer

from controller.cli.output import print_json, print_text
from controller.cli.session import AsJson

__all__ = ["repair_command"]

Table = Annotated[Path, typer.Argument(help="Folder of the table.", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def repair_command(table: Table, yes: Yes = False, json_: AsJson = False) -> None:
    """Undo what other programs wrote into a table, and put its fence back.

    Their versions stay readable in the table's history. Resume the dataflow afterwards.
    """
    if not (yes or json_):
        question = f"What others wrote into {table} will no longer show. Go on?"
        typer.confirm(question, abort=True, err=True)
    files = importlib.import_module("cbp.engine.storage.files").files_for(str(table.absolute()))
    found = importlib.import_module("cbp.engine.delta.repair").repair(
        str(table.absolute()), files=files, now_ms=int(time.time() * 1000)
    )
    undone = [
        {"version": u.version, "operation": u.operation, "engine": u.engine} for u in found.undone
    ]
    if json_:
        print_json(
            {
                "repaired": str(table),
                "version": found.version,
                "shows": found.shows,
                "undone": undone,
            }
        )
        return
    for entry in undone:
        print_text(f"undone: version {entry['version']}, {entry['operation']} by {entry['engine']}")
    print_text(f"{table} shows version {found.shows} again, as version {found.version}", "green")
