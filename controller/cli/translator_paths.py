"""Whose translators a command knows: the option `--translators`, and the project in this folder."""

from pathlib import Path
from typing import Annotated, Any

import typer

from cbp.errors import DefinitionError
from controller.registry.translator_paths import canonical_name, project_name, project_points
from controller.settings import Settings

Translators = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="PATH",
        help="A Python file, a folder of such files, or a project's folder, whose translators "
        "documents may name; may be repeated.",
    ),
]


def project_here(settings: Settings) -> dict[str, Any]:
    """Return the project in whose folder the command is called, as a setting; else nothing.

    Not if its package is installed and allowed: its names would then be there twice.
    """
    here = Path.cwd()
    allowed = {canonical_name(package) for package in (*settings.allowed_packages, "cbp")}
    try:
        is_project = bool(project_points(here)) and project_name(here) not in allowed
    except DefinitionError:  # no TOML; it is read for its translators only if it is named
        is_project = False
    return {"translators": (here,)} if is_project else {}
