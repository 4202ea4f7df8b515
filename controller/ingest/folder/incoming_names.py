"""Names in `incoming`: those that may be claimed, and those that will not be, with the reason.

A `Candidate` holds what must not change until it is claimed. A link, a FIFO, a folder or a name
that says "not yet" stays where its producer put it, since only the producer knows what it is for.
It is shown, and it causes a warning once it is old. Its age counts from the last change of status
(`ctime`), which a producer cannot set; a write changes it too. On a network file system that is
the server's clock.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import nsmallest
from pathlib import Path

from controller.ingest.folder.source_place import evidence

__all__ = ["SHOWN_MAX", "Candidate", "Unclaimed", "UnclaimedFiles", "look_at", "why_not_regular"]

SHOWN_MAX = 100

_KINDS = (
    (stat.S_ISLNK, "a symbolic link: links are not followed; move the file itself here"),
    (stat.S_ISDIR, "a folder: files in folders are not taken; move them into `incoming` itself"),
    (stat.S_ISFIFO, "a FIFO: only regular files are taken"),
    (stat.S_ISSOCK, "a socket: only regular files are taken"),
    (stat.S_ISBLK, "a device: only regular files are taken"),
    (stat.S_ISCHR, "a device: only regular files are taken"),
)


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
        """Return whether the file is still there, unchanged since the listing."""
        return look_at(path) == self


def look_at(path: Path) -> Candidate | None:
    """Return a name as it is now, whatever it is; `None` if it is gone."""
    try:
        return Candidate.of(path.name, path.lstat())
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """One name that stays in `incoming`.

    Attributes:
        name: As evidence.
        why: What it is, and what its producer can do.
        since: When it was last changed, aware and in UTC; `None` if it is unknown.
    """

    name: str
    why: str
    since: datetime | None

    @classmethod
    def of(cls, name: str, why: str, ctime: float | None) -> Unclaimed:
        """Return the entry for a name, from its `ctime` as `lstat` returns it."""
        return cls(evidence(name), why, None if ctime is None else _time(ctime))


@dataclass(frozen=True, slots=True)
class UnclaimedFiles:
    """All names that stay in one `incoming`.

    Attributes:
        count: How many there are.
        oldest: The oldest of them, at most `SHOWN_MAX`.
    """

    count: int = 0
    oldest: tuple[Unclaimed, ...] = ()

    @classmethod
    def of(cls, files: Iterable[Unclaimed]) -> UnclaimedFiles:
        """Count all and keep the oldest."""
        every = list(files)
        first = datetime.min.replace(tzinfo=UTC)
        oldest = nsmallest(SHOWN_MAX, every, key=lambda one: (one.since or first, one.name))
        return cls(len(every), tuple(oldest))

    def older_than(self, moment: datetime) -> tuple[Unclaimed, ...]:
        """Return those of `oldest` that were there before a moment."""
        return tuple(one for one in self.oldest if one.since is None or one.since < moment)


def why_not_regular(mode: int) -> str:
    """Return what kind of thing it is, by its mode; `""` if it is a regular file."""
    if stat.S_ISREG(mode):
        return ""
    reasons = (why for is_kind, why in _KINDS if is_kind(mode))
    return next(reasons, "no regular file: only these are taken")


def _time(ctime: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(ctime, UTC)
    except (ValueError, OverflowError, OSError):
        return None
