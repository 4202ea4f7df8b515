"""Which source owns a folder: one real folder belongs to one source.

Two paths may lead to one folder without any link, as where it is mounted twice or where the file
system takes `Orders` and `orders` for one name. Two sources would then take each other's files.
The one that was looked at first keeps its folders while they lie where they were.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

from controller.ingest.errors import DropFolderError, device_errors
from controller.ingest.folder.source_folders import SourcePlace

__all__ = ["FolderOwners"]

Identity = tuple[int, int]


class FolderOwners:
    """Remembers the folders of sources; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: dict[Identity, Path] = {}

    def require(self, place: SourcePlace) -> None:
        """Note the folders of a source as its own; those that are missing are left out.

        Raises:
            DropFolderError: One of them is a folder of another source.
        """
        for folder in place.folders:
            identity = _identity(folder)
            if identity is None:
                continue
            with self._lock:
                owner = self._owners.setdefault(identity, folder)
            if owner == folder:
                continue
            if _identity(owner) == identity:
                source = f"{owner.parent.parent.name}.{owner.parent.name}"
                why = (
                    f"is the same folder as {owner}, which belongs to source {source}; give each "
                    "source a folder of its own"
                )
                raise DropFolderError(str(folder), why)
            with self._lock:
                self._owners[identity] = folder


def _identity(folder: Path) -> Identity | None:
    with device_errors(str(folder)), suppress(FileNotFoundError):
        status = os.lstat(folder)
        return status.st_dev, status.st_ino
    return None
