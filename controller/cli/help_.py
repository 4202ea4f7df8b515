"""The command `cbp help`: prints a page about a subject."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from cbp.errors import NotFoundError
from controller.cli.damage_page import PAGE
from controller.cli.output import print_json, print_text
from controller.cli.session import AsJson

__all__ = ["help_command"]

Subject = Annotated[str, typer.Argument(help="`damage` is one.", show_default=False)]

_HEAD = (
    "What is damaged, how it shows, what is lost, what mends it. A stage that meets a damage "
    "stops, the others go on; after mending: cbp resume DATAFLOW. Find all damages with: cbp scrub."
)


def help_command(subject: Subject, json_: AsJson = False) -> None:
    """Print a page: `damage` says of every kind of damage what it means, and what mends it."""
    if subject != "damage":
        raise NotFoundError(kind="page", name=f"{subject}; there is: damage")
    if json_:
        print_json({"items": [asdict(row) for row in PAGE]})
        return
    print_text(_HEAD)
    for row in PAGE:
        print_text("")
        print_text(row.what, "bold")
        for name in ("shows", "lost", "mends"):
            print_text(f"  {name + ':':7}{getattr(row, name)}")
