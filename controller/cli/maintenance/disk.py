"""The command `cbp disk`: how much space each table of a dataflow takes."""

from __future__ import annotations

import typer

from cbp.errors.counts import format_count
from controller.cli.session import AsJson, DataflowName, fetch
from controller.terminal import bytes_text, clock, print_table, print_text

__all__ = ["disk_command"]


def disk_command(context: typer.Context, dataflow: DataflowName, json_: AsJson = False) -> None:
    """Show how many files and bytes each table takes, all its readable versions included."""
    answer = fetch(context, json_, "dataflows", dataflow, "disk")
    rows = [(one["place"], one["files"], bytes_text(one["bytes"])) for one in answer["items"]]
    print_table(("place", "files", "size"), rows, empty="nothing is on disk")
    total = f"{format_count(answer['files'], 'file')}, {bytes_text(answer['bytes'])}"
    print_text(f"{total}, measured at {clock(answer['at'])}")
