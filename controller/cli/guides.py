"""The command `cbp help`: the guides that the package carries; it needs no service."""

from __future__ import annotations

from typing import Annotated

import typer

from controller.cli.session import Session
from controller.guides import GROUPS, find_guide, guides
from controller.terminal import print_markdown, print_text

Name = Annotated[str | None, typer.Argument(help="Name of the guide; without it, all are listed.")]


def help_command(session: Session, name: Name = None) -> None:
    """Print a guide, such as `roll-back`; without a name, list them.

    Each guide explains one task, command by command. The page shows the same guides.
    """
    if name is not None:
        guide = find_guide(name)
        session.exit_if_json(
            {"name": guide.name, "title": guide.title, "about": guide.about, "text": guide.text}
        )
        print_markdown(guide.text)
        return
    fields = ("name", "group", "title", "about")
    listed = [{field: getattr(one, field) for field in fields} for one in guides()]
    session.exit_if_json({"items": listed})
    for group in GROUPS:
        print_text(f"{group}:", "bold")
        for guide in guides():
            if guide.group == group:
                print_text(f"  cbp help {guide.name:24}{guide.title}")
    print_text("for a command's options: cbp COMMAND --help; for all commands: cbp --help")
