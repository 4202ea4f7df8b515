"""Which files of a source's `incoming` folder may be claimed now.

A file is eligible when it is regular (never a link, FIFO, device or folder), not
hidden, not named as unfinished, and either a complete manifest names it, or its
size, time and identity were the same in two listings at least `settle_seconds`
apart by our own clock. File times of producers are compared only for equality and
to order files of one listing; two hosts' clocks are never compared.

A file named `_CLOSE` is a marker: it closes the open frames of the flow behind the files
that are older than it. It has its turn among them, and newer files wait for it; what is
recorded of it is durable once it was sealed (renamed to a hidden name) and its close put.

Not guaranteed: that a producer that stalls for longer than `settle_seconds` in the
middle of a file is noticed; it should write under a `.part` name, or a manifest.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from controller.ingest.folders import evidence
from controller.ingest.manifest import MANIFEST_NAME, Manifest, is_sealed, read_manifest

__all__ = ["CLOSE_NAME", "Candidate", "Listed", "Settler", "sealed_close_name"]

CLOSE_NAME = "_CLOSE"
_SEALED_CLOSE = re.compile(r"\.close-([a-z0-9]+)")

_UNFINISHED = (".part", ".tmp", ".crdownload", "~")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A regular file of a listing."""

    name: str
    bytes: int
    mtime_ns: int
    inode: int

    @property
    def path(self) -> str:
        """The name as text; see `folders.evidence`."""
        return evidence(self.name)

    @property
    def turn(self) -> tuple[int, bool, str]:
        """Its place among files of one listing: by time; of one time, a marker is the last."""
        return self.mtime_ns, self.name == CLOSE_NAME, self.path


def sealed_close_name(identity: str) -> str:
    """Return the hidden name of a marker whose close is being recorded."""
    return f".close-{identity}"


@dataclass(frozen=True, slots=True)
class Listed:
    """What one listing says.

    Attributes:
        eligible: In the order in which they are to be claimed.
        waiting: Number of files that may become eligible.
        ignored: Names that are no regular files.
        paths: Text of every regular file's name, hidden ones left out.
        sealed: Manifests whose files are being taken.
        to_seal: A manifest that is complete now and must be sealed before any claim.
        closes: Ids of sealed markers, oldest first; they come before anything eligible.
    """

    eligible: Sequence[Candidate]
    waiting: int
    ignored: tuple[str, ...]
    paths: frozenset[str]
    sealed: Sequence[Manifest] = ()
    to_seal: Manifest | None = None
    closes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Manifests:
    sealed: list[Manifest] = field(default_factory=list)
    complete: Manifest | None = None
    held: frozenset[str] = frozenset()


class Settler:
    """Remembers one folder's listings.

    Args:
        clock: Returns an aware time in UTC.
        settle_seconds: 0 when producers only ever rename complete files into place.
    """

    def __init__(
        self, folder: Path, *, clock: Callable[[], datetime], settle_seconds: float
    ) -> None:
        self._folder, self._clock = folder, clock
        self._settle = timedelta(seconds=settle_seconds)
        self._seen: dict[Candidate, datetime] = {}

    def look(self) -> Listed:
        """List the folder once.

        Raises:
            OSError: The folder cannot be read.
        """
        now = self._clock()
        found, hidden, ignored = self._scan()
        # A clock that was set back must not keep a file waiting: it begins anew.
        self._seen = {one: min(self._seen.get(one, now), now) for one in found}
        ready = {
            one.name: one
            for one in found
            if now - self._seen[one] >= self._settle and (self._seen[one] < now or not self._settle)
        }
        manifests = self._manifests(found, hidden, ready)
        eligible = self._order(found, ready, manifests)
        unready = len(found) - len(eligible) - (manifests.complete is not None)
        return Listed(
            eligible,
            unready,
            tuple(map(evidence, ignored)),
            frozenset(one.path for one in found),
            manifests.sealed,
            manifests.complete,
            tuple(sorted(match[1] for name in hidden if (match := _SEALED_CLOSE.fullmatch(name)))),
        )

    def _scan(self) -> tuple[list[Candidate], list[str], list[str]]:
        found, hidden, ignored = [], [], []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.startswith(".") or entry.name.endswith(_UNFINISHED):
                    hidden.append(entry.name)
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if not stat.S_ISREG(status.st_mode):
                    ignored.append(entry.name)
                    continue
                found.append(
                    Candidate(entry.name, status.st_size, status.st_mtime_ns, status.st_ino)
                )
        return found, hidden, sorted(ignored)

    def _manifests(
        self, found: Sequence[Candidate], hidden: Iterable[str], ready: dict[str, Candidate]
    ) -> _Manifests:
        """Read the manifests; an unreadable one stays in `ready` and is claimed, to be rejected."""
        made = _Manifests()
        for name in sorted(filter(is_sealed, hidden)):
            made.sealed.append(read_manifest(self._folder / name))
        if not any(one.name == MANIFEST_NAME for one in found):
            return made
        try:
            manifest = read_manifest(self._folder / MANIFEST_NAME)
        except (ValueError, FileNotFoundError):
            return made
        ready.pop(MANIFEST_NAME, None)
        if manifest.complete({one.name: one.bytes for one in found}):
            made.complete = manifest
        else:
            made.held = frozenset(file.name for file in manifest.files)
        return made

    def _order(
        self, found: Sequence[Candidate], ready: dict[str, Candidate], manifests: _Manifests
    ) -> list[Candidate]:
        by_name = {one.name: one for one in found}
        announced = [file for manifest in manifests.sealed for file in manifest.files]
        if manifests.complete is not None:
            announced += manifests.complete.files
        first = {
            file.name: by_name[file.name]
            for file in announced
            if file.name in by_name and by_name[file.name].bytes == file.bytes
        }
        rest = [
            one
            for one in ready.values()
            if one.name not in first and one.name not in manifests.held
        ]
        rest.sort(key=lambda one: one.turn)
        return [*first.values(), *_up_to_marker(rest, found, manifests.held)]


def _up_to_marker(
    ready: Sequence[Candidate], found: Sequence[Candidate], held: frozenset[str]
) -> Sequence[Candidate]:
    """Leave out a marker and what is behind it while files before it are not ready."""
    for place, marker in enumerate(ready):
        if marker.name == CLOSE_NAME:
            names = {one.name for one in ready} | held
            if any(one.turn < marker.turn for one in found if one.name not in names):
                return ready[:place]
    return ready
