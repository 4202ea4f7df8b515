"""A file of `incoming` as a listing sees it: what must not change until it is claimed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from controller.ingest.folder.source_folders import evidence

__all__ = ["Candidate", "look_at"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A name of a listing. Two of them are equal if nobody wrote to the file in between."""

    name: str
    bytes: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, name: str, status: os.stat_result) -> Candidate:
        """Return a name with what the file system says of it."""
        return cls(name, status.st_size, status.st_mtime_ns, status.st_ino)

    @property
    def path(self) -> str:
        """The name as text; see `source_folders.evidence`."""
        return evidence(self.name)

    def is_at(self, path: Path) -> bool:
        """Return whether the file still lies there unchanged since the listing."""
        return look_at(path) == self


def look_at(path: Path) -> Candidate | None:
    """Return a name as it is now, whatever it is; None if nothing lies there."""
    try:
        return Candidate.of(path.name, path.lstat())
    except OSError:
        return None
