"""The command `cbp new`: a starter project in a folder of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cbp.errors import AlreadyExistsError
from controller.cli.errors import FolderUnwritableError
from controller.cli.session import AsJson
from controller.development.starter_project import check_project_name, starter_files
from controller.terminal import print_json, print_text

Name = Annotated[str, typer.Argument(help="Name of the project, its folder and its dataflow.")]


def new_command(name: Name, json_: AsJson = False) -> None:
    """Make a starter project: a package with a translator, its test, a document and records.

    The folder NAME is created in the current folder. It may already exist if it is empty.
    """
    check_project_name(name)
    folder = Path(name)
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise AlreadyExistsError(kind="folder with files", name=str(folder))
        files = starter_files(name)
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise FolderUnwritableError(folder, error.strerror or str(error)) from error
    if json_:
        print_json({"folder": str(folder.absolute()), "files": sorted(files)})
        return
    print_text(f"made {folder}/ with {len(files)} files; try:", "green")
    print_text(f"  cd {folder}")
    print_text("  python -m pytest               # in memory")
    print_text("  cbp dev dataflow.yaml          # the service; and, in another terminal:")
    print_text(f"  cbp drop {name} visits records/*.jsonl --wait")
    print_text(f"  cbp state {name} count.pages")
