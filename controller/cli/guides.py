"""The command `cbp help`: the guides that the package carries; it needs no service."""

from __future__ import annotations

from typing import Annotated

import typer

from controller.cli.session import AsJson
from controller.guides import GROUPS, find_guide, guides
from controller.terminal import print_json, print_markdown, print_text

Name = Annotated[str | None, typer.Argument(help="Name of the guide; without it, all are listed.")]


def help_command(name: Name = None, json_: AsJson = False) -> None:
    """Print a guide, such as `roll-back`; without a name, list them.

    Each guide explains one task, command by command. The page shows the same guides.
    """
    if name is None:
        _list_guides(as_json=json_)
        return
    guide = find_guide(name)
    if json_:
        print_json(
            {"name": guide.name, "title": guide.title, "about": guide.about, "text": guide.text}
        )
    else:
        print_markdown(guide.text)


def _list_guides(*, as_json: bool) -> None:
    if as_json:
        fields = ("name", "group", "title", "about")
        print_json({"items": [{name: getattr(one, name) for name in fields} for one in guides()]})
        return
    for group in GROUPS:
        print_text(f"{group}:", "bold")
        for guide in guides():
            if guide.group == group:
                print_text(f"  cbp help {guide.name:24}{guide.title}")
    print_text("for a command's options: cbp COMMAND --help; for all commands: cbp --help")
