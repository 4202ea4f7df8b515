"""A dataflow's folder: claiming it, finding described folders, and removing it.

    <tables>/<dataflow>/_description/00000000000000000001.json

The description is put before anything else. So a folder is self-describing from the first moment,
and a lost metadata store can be filled again from it.

Invariant: a folder is used only if it is empty or describes exactly the registered dataflow
(tests/controller/loop/operations/test_registration.py).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import structlog

from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.files import Files, local_path
from cbp.errors import (
    DataflowInvalidError,
    InvariantError,
    Mistake,
    OperatingError,
    TableForeignError,
)
from controller.loop.records.version_log import FOLDER, Description, Descriptions
from controller.store.base import DataflowRecord

_log = structlog.get_logger(__name__)

SHOWN_MAX = 5
_PURGED = ".purged-"
_SCRATCH = ".scratch-"


def claim_folder(files: Files, folder: str, first: Description) -> tuple[Description, bool]:
    """Claim a folder for a dataflow; succeeds again for the same document.

    Returns its description, and whether it had that before: then it may hold earlier tables.

    Args:
        first: Description for a folder without one. An existing description is kept, since
            epochs and intentions depend on it.

    Raises `TableForeignError`, `DataflowInvalidError` or `InvariantError`.
    """
    document = first.document
    try:
        plain = json.loads(json.dumps(document, allow_nan=False))
    except (TypeError, ValueError) as error:
        mistake = Mistake("document_invalid", "document", str(error))
        raise DataflowInvalidError(str(document.get("name")), [mistake]) from error
    names = files.list_names(folder)
    if names and not files.list_names(f"{folder}/{FOLDER}"):
        others = [name for name in names if name != FOLDER]
        if others:
            raise TableForeignError(folder, ", ".join(others[:SHOWN_MAX]))
    descriptions = Descriptions(files)
    description = descriptions.newest(folder)
    if description is None:
        descriptions.put(folder, first)
        return first, False
    if description.document != plain:
        raise TableForeignError(folder, "the tables of a dataflow with another document")
    return description, True


def described(files: Files, tables_root: str) -> dict[str, Any]:
    """Return folder name -> newest document, for the described folders in `tables_root`.

    Leaves out hidden folders, and folders whose description is damaged or cannot be read.
    """
    documents = {}
    descriptions = Descriptions(files)
    for name in files.list_names(tables_root):
        if not name.startswith("."):
            with suppress(InvariantError, OperatingError):  # damaged, or not a dataflow's folder
                newest = descriptions.newest(f"{tables_root}/{name}")
                if newest is not None:
                    documents[name] = newest.document
    return documents


def set_aside(files: Files, folder: str, *, run: str, faults: Faults) -> str:
    """Rename a folder durably; `remove_purged` then removes it.

    So a crash never leaves half of a dataflow under its name. After a crash, `left_aside` finds the
    renamed folder.

    Returns:
        The new path of the folder; `""` if there is no folder.
    """
    path = local_path(folder)
    parent, _, name = path.rpartition("/")
    away = f"{parent}/{_PURGED}{name}-{run}"
    try:
        if not os.path.lexists(path):
            return ""
        faults("clean_up.before")
        os.rename(path, away)
        files.sync_dir(parent)
        faults("clean_up.after")
    except OSError as error:
        raise _not_removed(path, error) from error
    return away


def remove_purged(path: str) -> None:
    """Remove a renamed folder with everything in it; repeatable, may take a long time."""
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _not_removed(path, error) from error


def scratch_folder(tables_root: str, name: str) -> str:
    """Return the path of a scratch folder beside the dataflows' folders; its name is hidden."""
    return f"{tables_root}/{_SCRATCH}{name}"


def remove_scratch(files: Files, folder: str, *, faults: Faults) -> None:
    """Remove a scratch folder as far as possible; the next start removes the rest."""
    if files.list_names(folder):
        faults("clean_up.before")
        shutil.rmtree(local_path(folder), ignore_errors=True)
        faults("clean_up.after")


def left_aside(files: Files, tables_root: str) -> list[str]:
    """Return purged and scratch folders left by crashes; call it while none is in use."""
    return [
        local_path(f"{tables_root}/{name}")
        for name in files.list_names(tables_root)
        if name.startswith((_PURGED, _SCRATCH))
    ]


def _not_removed(path: str, error: OSError) -> OperatingError:
    message = f"{path} cannot be removed: {error.strerror or error}"
    return OperatingError(message, path=path)


def warn_of_other_places(records: Iterable[DataflowRecord], tables: str) -> None:
    """Log a warning for each dataflow whose folder is not below the folder of the tables.

    A copied database still names the original folders, so a service on the copy would change them.
    """
    for record in records:
        if not record.folder.startswith(f"{tables}/"):
            _log.warning(
                "dataflow.tables_elsewhere",
                dataflow=record.name,
                folder=record.folder,
                tables=tables,
                advice="if the service runs on a restored copy, stop it, remove its database and "
                "run: cbp recover --rebuild",
            )
