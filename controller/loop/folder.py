"""A dataflow's folder: its description, whether it is free, and its removal.

    <tables>/<dataflow>/_description/00000000000000000001.json

The description is put before anything else, so that a folder says what it is from
the first moment, and a lost metadata store can be filled again from it.

Invariant: a folder is used only if it is empty or describes exactly the dataflow
that is registered (tests/controller/test_loop.py).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cbp.engine.faults import Faults
from cbp.engine.files import Exists, Files, local_path
from cbp.errors import DataflowInvalidError, Mistake, OperatingError, TableForeignError

__all__ = ["Claimed", "claim_folder", "described", "purge_folder", "remove_purged"]

FORMAT = 1
FIRST = f"{1:020d}.json"
DESCRIPTION = "_description"
SHOWN_MAX = 5
_PURGED = ".purged-"


@dataclass(frozen=True, slots=True)
class Claimed:
    """A folder that belongs to a dataflow.

    Attributes:
        before: Whether it was described before: it may hold tables of an earlier life.
        leaders: The stages that lead others, as its life began with; `None`: each leads itself.
    """

    before: bool
    leaders: tuple[str, ...] | None


def claim_folder(
    files: Files, folder: str, document: Mapping[str, Any], leaders: Sequence[str]
) -> Claimed:
    """Make a folder belong to a dataflow; succeeds again for the same document.

    Args:
        files: The port.
        folder: To claim.
        document: That describes the dataflow.
        leaders: The stages that lead others, unless the folder is older: epochs and
            intentions in it go by what was chosen then.

    Raises:
        TableForeignError: If it holds anything else.
        DataflowInvalidError: If the document holds what JSON cannot hold.
    """
    stated = {"format": FORMAT, "version": 1, "document": document}
    description = {**stated, "leaders": list(leaders)}
    try:
        data = json.dumps(description, allow_nan=False, sort_keys=True, indent=1).encode()
    except (TypeError, ValueError) as error:
        name, mistake = (
            str(document.get("name")),
            Mistake("document_invalid", "document", str(error)),
        )
        raise DataflowInvalidError(name, [mistake]) from error
    names = files.list_names(folder)
    if names and not files.list_names(f"{folder}/{DESCRIPTION}"):
        others = [name for name in names if name != DESCRIPTION]
        if others:
            raise TableForeignError(folder, ", ".join(others[:SHOWN_MAX]))
    result = files.put_if_absent(f"{folder}/{DESCRIPTION}/{FIRST}", data)
    if not isinstance(result, Exists):
        return Claimed(False, tuple(leaders))
    found = _parsed(result.data)
    known = found.pop("leaders", None) if isinstance(found, dict) else None
    if found != json.loads(json.dumps(stated)):
        raise TableForeignError(folder, "a dataflow with another description")
    return Claimed(True, None if known is None else tuple(known))


def described(files: Files, tables_root: str) -> dict[str, Any]:
    """Return the document of every described folder below `tables_root`, by folder name."""
    found = {}
    for name in files.list_names(tables_root):
        path = f"{tables_root}/{name}/{DESCRIPTION}/{FIRST}"
        if not name.startswith(".") and files.exists(path):
            description = _parsed(files.read(path))
            if isinstance(description, dict) and description.get("format") == FORMAT:
                found[name] = description["document"]
    return found


def purge_folder(files: Files, folder: str, *, run: str, faults: Faults) -> None:
    """Remove a folder with everything in it; it is gone from its name at once.

    Renamed first, so that a crash never leaves half of a dataflow under its name;
    `remove_purged` removes what such a crash left.

    Raises:
        OperatingError: If it cannot be renamed or removed.
    """
    path = local_path(folder)
    parent, _, name = path.rpartition("/")
    away = f"{parent}/{_PURGED}{name}-{run}"
    try:
        if os.path.lexists(path):
            faults("clean_up.before")
            os.rename(path, away)
            files.sync_dir(parent)
            faults("clean_up.after")
            shutil.rmtree(away)
    except OSError as error:
        message = f"{path} cannot be removed: {error.strerror or error}"
        raise OperatingError(message, path=path) from error


def remove_purged(files: Files, tables_root: str) -> None:
    """Remove what crashes left of purged folders; leaves alone what resists."""
    for name in files.list_names(tables_root):
        if name.startswith(_PURGED):
            shutil.rmtree(local_path(f"{tables_root}/{name}"), ignore_errors=True)


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None
