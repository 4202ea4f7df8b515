"""Checks that the folders of a source are real folders on one device.

Someone may replace a folder while the service runs. A link in place of `incoming` would hand over
the files of its target, and a link in place of `finished` would have files there removed. A link in
place of a source's own folder, or of its dataflow's, would let two sources take each other's files.
So every pass, every group of files and every upload checks all of them before it moves a file. A
missing folder is created again if the source's own folder exists. If that is missing as well, its
disk may not be mounted, so nothing is created.

Two paths may lead to one folder without any link, for example if it is mounted twice, or if the
file system treats `Orders` and `orders` as one name. So a real folder belongs to one source only:
the source that was checked first, as long as its folder exists.
"""

from __future__ import annotations

import os
import secrets
import stat
import threading
from contextlib import suppress
from pathlib import Path

import structlog

from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.engine.storage.files import Files
from cbp.engine.storage.table_names import rejects_table
from cbp.errors import DiskFullError
from controller.ingest.errors import DropFolderError, device_errors
from controller.ingest.folder.source_place import SourcePlace, move

_log = structlog.get_logger(__name__)


def prepare_source(place: SourcePlace, files: Files) -> None:
    """Create the folders and try moves between them; or `DropFolderError`, `DiskFullError`."""
    require_real(place)
    files.make_dirs(*map(str, place.folders), f"{place.increments}/_log")
    require_folders(place, files)
    _try_move(place, files)


def remove_temporaries(place: SourcePlace, files: Files) -> None:
    """Remove temporary files of a killed process."""
    rejects = f"{place.folder}/{rejects_table(place.name)}"
    for folder in (
        *(f"{place.increments}{name}" for name in ("", "/_log", "/_log/sealed", "/_objects")),
        *(f"{rejects}{name}" for name in ("", "/_delta_log")),
        str(place.quarantine),
    ):
        files.remove_temporaries(folder)


def require_folders(place: SourcePlace, files: Files) -> None:
    """Check the folders of a source; make those that are missing. Raises as `prepare_source`."""
    missing = require_real(place)
    if not missing:
        return
    if not os.path.isdir(place.root):
        why = (
            "the source's folder is missing; mount its disk or restore it, or restart the "
            "service, which recreates it"
        )
        raise DropFolderError(str(place.root), why)
    for folder in missing:
        files.make_dirs(str(folder))
        _log.warning("drop_folder.made_again", dataflow=place.dataflow, folder=str(folder))
    require_real(place)


def require_real(place: SourcePlace) -> list[Path]:
    """Check the existing folders of a source; return the missing ones. Raises `DropFolderError`."""
    missing, devices = list[Path](), set[int]()
    for parent in (place.root.parent, place.root):
        _real_status(parent)
    for folder in place.folders:
        status = _real_status(folder)
        if status is None:
            missing.append(folder)
        else:
            devices.add(status.st_dev)
    if len(devices) > 1:
        why = "incoming, claimed, quarantine and finished must be on one file system"
        raise DropFolderError(str(place.root), why)
    return missing


def _real_status(folder: Path) -> os.stat_result | None:
    with device_errors(str(folder)), suppress(FileNotFoundError):
        status = os.lstat(folder)
        if stat.S_ISLNK(status.st_mode):
            raise DropFolderError(str(folder), "is a symbolic link; use a real folder")
        if not stat.S_ISDIR(status.st_mode):
            raise DropFolderError(str(folder), "is not a folder; move it away")
        return status
    return None


def _try_move(place: SourcePlace, files: Files) -> None:
    # A new name, opened exclusively: the probe never writes through an existing entry.
    probe = place.incoming / f".probe-{secrets.token_hex(8)}.tmp"
    target = place.claimed / probe.name
    try:
        with open(probe, "xb") as file:
            file.write(b"probe")
            file.flush()
            os.fsync(file.fileno())
        move(probe, target, files, NO_FAULTS)
    except OSError as exc:
        if DiskFullError.is_disk_full(exc):
            raise DiskFullError(str(place.root)) from exc
        why = (
            f"the service cannot write a file there and move it ({exc.strerror}); give its user "
            "read, write and search permission on the folder and the folders in it"
        )
        raise DropFolderError(str(place.root), why) from exc
    finally:
        for path in (probe, target):
            with suppress(OSError):  # on a read-only disk this fails as the probe did
                path.unlink(missing_ok=True)


class FolderOwners:
    """Remembers which source owns a folder; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: dict[tuple[int, int], Path] = {}

    def require(self, place: SourcePlace) -> None:
        """Note the folders of a source as its own; raises `DropFolderError` if another has them."""
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


def _identity(folder: Path) -> tuple[int, int] | None:
    with device_errors(str(folder)), suppress(FileNotFoundError):
        status = os.lstat(folder)
        return status.st_dev, status.st_ino
    return None
