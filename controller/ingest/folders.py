"""The folders of one source and how files move between them.

    <drop root>/<dataflow>/<source>/incoming     producers write here
                                    claimed      being taken in, under the claim's id
                                    quarantine   rejected, each with its .reason.json
                                    finished     accepted, or a duplicate of what was

All four lie on one device, so that every move is one atomic rename; a move is
durable when it returns. Names of producers are kept as evidence and never reach a
path: what the service writes is named by ids and a sanitised rest.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cbp.engine.base import source_folder
from cbp.engine.faults import NO_FAULTS, Faults
from cbp.engine.files import Files, local_path
from cbp.model.dataflow import Dataflow, SourceNode
from controller.ingest.errors import DropFolderError
from controller.store.base import DataflowRecord

__all__ = ["SourcePlace", "evidence", "kept_name"]

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_KEPT_CHARACTERS = 100
_TIME_DIGITS = 12


def evidence(name: str) -> str:
    """Return a file's name as text that any store and screen can hold."""
    return os.fsencode(name).decode("utf-8", "backslashreplace").replace("\0", "\\0")


def kept_name(claim: str, original: str) -> str:
    """Return a safe name for a file that is kept: the claim's id and a hint of the original."""
    return f"{claim}-{_UNSAFE.sub('_', original)[:_KEPT_CHARACTERS]}"


def claimed_at(name: str) -> datetime | None:
    """Return when a kept file was claimed, as its name says; `None`: it is none of ours."""
    try:
        return datetime.fromtimestamp(int(name[:_TIME_DIGITS], 16) / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """One source of one dataflow: where its files and its increments lie.

    Attributes:
        folder: The dataflow's folder.
        root: The source's part of the drop folder.
    """

    dataflow: str
    source: SourceNode
    folder: str
    root: Path

    @classmethod
    def of(
        cls, record: DataflowRecord, dataflow: Dataflow, source: SourceNode, drop_root: Path
    ) -> SourcePlace:
        """Return the place of a source; names were checked when it was registered."""
        root = drop_root / dataflow.name / source.name
        return cls(dataflow.name, source, local_path(record.folder), root)

    @property
    def name(self) -> str:
        """The source's name, which is also its flow's."""
        return self.source.name

    @property
    def incoming(self) -> Path:
        """Where producers write."""
        return self.root / "incoming"

    @property
    def claimed(self) -> Path:
        """Where a file lies while it is taken in."""
        return self.root / "claimed"

    @property
    def quarantine(self) -> Path:
        """Where rejected files lie."""
        return self.root / "quarantine"

    @property
    def finished(self) -> Path:
        """Where files lie that are done with."""
        return self.root / "finished"

    @property
    def increments(self) -> str:
        """Folder of the accepted increments."""
        return f"{self.folder}/{source_folder(self.name)}"

    def claimed_name(self, claim: str) -> str:
        """Return the name of a claimed copy."""
        return f"{claim}.{self.source.format}"

    def make(self, files: Files) -> None:
        """Create the folders and check that moves between them are atomic and durable.

        Raises:
            DropFolderError: Saying which folder cannot be used, and why.
        """
        folders = (self.incoming, self.claimed, self.quarantine, self.finished)
        for folder in folders:
            files.make_dirs(str(folder))
            if folder.is_symlink():
                raise DropFolderError(str(folder), "is a symbolic link; use a real folder")
        devices = {os.stat(folder).st_dev for folder in folders}
        if len(devices) > 1:
            why = "incoming, claimed, quarantine and finished must lie on one file system"
            raise DropFolderError(str(self.root), why)
        files.make_dirs(f"{self.increments}/_log")
        self._try_move(files)

    def _try_move(self, files: Files) -> None:
        probe = self.incoming / f".probe-{os.getpid()}.tmp"
        target = self.claimed / probe.name
        try:
            with open(probe, "wb") as file:
                file.write(b"probe")
                file.flush()
                os.fsync(file.fileno())
            move(probe, target, files, NO_FAULTS)
        except OSError as exc:
            why = (
                f"a file cannot be written and moved ({exc.strerror}); the service needs all rights"
            )
            raise DropFolderError(str(self.root), why) from exc
        finally:
            for path in (probe, target):
                path.unlink(missing_ok=True)


def move(path: Path, target: Path, files: Files, faults: Faults) -> None:
    """Move a file durably; both folders lie on one device.

    Args:
        path: The file.
        target: Its new path.
        files: What makes names durable.
        faults: Told `rename.before` and `rename.after`.

    Raises:
        OSError: The rename failed; the file is where it was.
    """
    faults("rename.before")
    os.rename(path, target)
    files.sync_dir(str(target.parent))
    files.sync_dir(str(path.parent))
    faults("rename.after")


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder that are not hidden, sorted; [] if it is absent."""
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except FileNotFoundError:
        return []


def find_kept(folder: Path, claim: str) -> Path | None:
    """Return the file that was kept under a claim's id, if any."""
    for name in names_in(folder):
        if name.startswith(f"{claim}-") and not name.endswith(".reason.json"):
            return folder / name
    return None


def reason_path(path: Path) -> Path:
    """Return where the reason of a quarantined file lies."""
    return path.with_name(path.name + ".reason.json")


Reason = dict[str, Any]
