"""Whose translators a command knows: the option `--translators`, and the project in this folder."""

from __future__ import annotations

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
        help="A Python file, a folder of Python files, or a project folder. Documents can use the "
        "translators in it. Can be repeated.",
    ),
]


def project_here(settings: Settings) -> dict[str, Any]:
    """Return the project in the current folder, as a setting; nothing if there is none.

    Also nothing if its package is installed and allowed, since its names would occur twice.
    """
    here = Path.cwd()
    allowed = {canonical_name(package) for package in (*settings.allowed_packages, "cbp")}
    try:
        is_project = bool(project_points(here)) and project_name(here) not in allowed
    except DefinitionError:  # no TOML; it is read for its translators only if it is named
        is_project = False
    return {"translators": (here,)} if is_project else {}
