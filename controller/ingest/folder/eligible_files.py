"""Eligible files: lists the `incoming` folder of a source, and decides which files may be claimed.

A file is eligible when it is regular (never a link, FIFO, device or folder), not hidden, and not
named as unfinished (`cbp.model.source.unfinished_names`). A nested source takes the files in
folders below, too, under their paths from `incoming`; names that begin with `_` stay there.
In addition one of these holds:

    named by a manifest  the manifest is complete
    renamed in           the rename was seen, and the file is what it was then (`incoming_watch`)
    settled              its size, time and identity were the same in two listings at least
                         `settle_seconds` apart by our own clock

Producers' file times are only compared for equality, and used to order the files of one listing.
Clocks of two hosts are never compared.

Every other name stays where its producer put it, since only the producer knows what it is for. It
is shown with its reason (`unclaimed`), and causes a warning once it is old. Its age counts from the
last change of status (`ctime`), which a producer cannot set. A sealed manifest that cannot be read
is claimed like a file, and then rejected. So nothing in a folder stops a listing. Only regular
files are ever opened or obeyed, even if they have the service's own names.

A file named `_CLOSE` is a marker: it closes the flow's open frames after all files that are older
than it. It takes its turn among them, and newer files wait for it. A recorded marker is durable
once it was sealed (renamed to a hidden name) and its close was put.

The files of a manifest become one increment, or none. A crash can leave some of them in `claimed`
and others in `incoming`, so they are gathered from both before any of them is read.

If a producer stalls for longer than `settle_seconds` in the middle of a file, the first part is
taken in (`late_writes` reports the rest). Such a producer should write under a `.part` name, or use
a manifest.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from heapq import nsmallest
from pathlib import Path
from typing import Any

from cbp.model.source.unfinished_names import UNFINISHED, is_unfinished, why_left_out
from controller.ingest.folder.incoming_watch import Candidate, IncomingWatch
from controller.ingest.folder.manifest import MANIFEST_NAME, Manifest, is_sealed, read_manifest
from controller.ingest.folder.source_place import evidence
from controller.ingest.rejection import FileRejectedError
from controller.store.base import ClaimRecord

SHOWN_MAX = 100

DEPTH_MAX = 16
"""Levels of folders below `incoming` that are listed."""

LOOKED_AT_TOGETHER = 4096
"""Number of names that a listing examines between two calls of `between`."""

_PATH_BYTES_MAX = 1024
_BELOW = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
Enter = Callable[[Path], None]

_KINDS = (
    (stat.S_ISLNK, "a symbolic link: links are not followed; move the file itself into `incoming`"),
    (
        stat.S_ISDIR,
        "a folder: files in folders are not taken in; move them into `incoming` itself, or "
        "declare `nested: true` in the source",
    ),
    (stat.S_ISFIFO, "a FIFO: only regular files are taken in"),
    (stat.S_ISSOCK, "a socket: only regular files are taken in"),
    (stat.S_ISBLK, "a device: only regular files are taken in"),
    (stat.S_ISCHR, "a device: only regular files are taken in"),
)


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """One name that stays in `incoming`, with advice; `since` is the time of its last change."""

    name: str
    why: str
    since: datetime | None

    @classmethod
    def of(cls, name: str, why: str, ctime: float | None) -> Unclaimed:
        """Return the entry for a name, which has not changed since its `ctime`."""
        return cls(evidence(name), why, None if ctime is None else time_of(ctime))


@dataclass(frozen=True, slots=True)
class UnclaimedFiles:
    """All names that stay in one `incoming`; `oldest` has at most `SHOWN_MAX`."""

    count: int = 0
    oldest: tuple[Unclaimed, ...] = ()

    @classmethod
    def of(cls, files: Iterable[Unclaimed]) -> UnclaimedFiles:
        """Count all names and keep the oldest."""
        every = list(files)
        first = datetime.min.replace(tzinfo=UTC)
        oldest = nsmallest(SHOWN_MAX, every, key=lambda one: (one.since or first, one.name))
        return cls(len(every), tuple(oldest))

    def to_json(self) -> list[dict[str, Any]]:
        """Return the oldest as JSON values."""
        return [
            {"name": one.name, "why": one.why, "since": one.since and one.since.isoformat()}
            for one in self.oldest
        ]

    def older_than(self, moment: datetime) -> tuple[Unclaimed, ...]:
        """Return the entries of `oldest` that existed before a moment."""
        return tuple(one for one in self.oldest if one.since is None or one.since < moment)


def do_nothing() -> None:
    """Do nothing: the default of `between`."""


def why_not_regular(mode: int) -> str:
    """Return the kind of an entry, from its mode; `""` if it is a regular file."""
    if stat.S_ISREG(mode):
        return ""
    reasons = (why for is_kind, why in _KINDS if is_kind(mode))
    return next(reasons, "not a regular file: only regular files are taken in")


def time_of(ctime: float) -> datetime | None:
    """Return a time of the file system; `None` if Python cannot represent it."""
    try:
        return datetime.fromtimestamp(ctime, UTC)
    except (ValueError, OverflowError, OSError):
        return None


CLOSE_NAME = "_CLOSE"
_SEALED_CLOSE = re.compile(r"\.close-([a-z0-9]+)")

_SEALED_MAX = 100
"""Maximum number of manifests whose files are read at a time; further manifests wait for these."""


def sealed_close_name(identity: str) -> str:
    """Return the hidden name of a marker whose close is being recorded."""
    return f".close-{identity}"


@dataclass(frozen=True, slots=True)
class Listed:
    """The result of one listing.

    Attributes:
        waiting: Number of files that may become eligible.
        settles_at: When the first of them has settled, if nothing is written to it.
        paths: Name, as text, of every file that may be claimed.
        sealed: Manifests whose files are being taken in.
        closes: Ids of sealed markers, oldest first; they come before all eligible files.
        seen: When each file was first listed in its present version, by its name.
    """

    eligible: Sequence[Candidate]
    waiting: int
    ignored: int
    paths: frozenset[str]
    sealed: Sequence[Manifest] = ()
    to_seal: Manifest | None = None
    closes: tuple[str, ...] = ()
    unclaimed: UnclaimedFiles = field(default_factory=UnclaimedFiles)
    settles_at: datetime | None = None
    seen: Mapping[str, datetime] = field(default_factory=dict)


@dataclass(slots=True)
class _Manifests:
    sealed: list[Manifest] = field(default_factory=list)
    damaged: list[Candidate] = field(default_factory=list)
    complete: Manifest | None = None
    held: frozenset[str] = frozenset()


@dataclass(slots=True)
class Scanned:
    """The names of a folder, by how they are handled."""

    candidates: list[Candidate] = field(default_factory=list)
    sealed: list[Candidate] = field(default_factory=list)
    closes: list[str] = field(default_factory=list)
    unclaimed: list[Unclaimed] = field(default_factory=list)
    ignored: int = 0


class EligibleFiles:
    """Remembers the listings of one folder, and says which files may be claimed.

    A file is complete `settle_seconds` after its last write; 0 means that producers only rename
    complete files into place.
    """

    def __init__(
        self,
        folder: Path,
        clock: Callable[[], datetime],
        settle_seconds: float,
        watch: IncomingWatch,
    ) -> None:
        self._folder, self._clock, self._watch = folder, clock, watch
        self._settle = timedelta(seconds=settle_seconds)
        self._last: dict[str, Candidate] = {}
        self._seen: dict[str, datetime] = {}
        self._read: dict[Candidate, Manifest] = {}

    def look(
        self,
        unfinished: Sequence[str] = UNFINISHED,
        enter: Enter | None = None,
        between: Callable[[], object] = do_nothing,
    ) -> Listed:
        """List the folder once; arguments as for `scan_folder`. Raises `OSError`."""
        now = self._clock()
        renamed = {one.name: one for one in self._watch.renamed_in(self._folder)}  # before listing
        scanned = scan_folder(self._folder, unfinished, enter, between)
        files = scanned.candidates
        by_name = {one.name: one for one in files}  # not by file, since there may be very many
        gone = [one for name, one in renamed.items() if by_name.get(name) != one]
        self._watch.forget(self._folder, gone)
        # If the clock was set back, the wait restarts; otherwise a file could wait for long.
        self._seen = {
            name: min(self._seen[name], now) if self._last.get(name) == one else now
            for name, one in by_name.items()
        }
        self._last = by_name
        ready = {
            name: one
            for name, one in by_name.items()
            if renamed.get(name) == one or self._settled(one, now)
        }
        manifests = self._manifests(scanned, ready, unfinished)
        ordered = self._order(files, ready, manifests)
        unready = len(files) - len(ordered) - (manifests.complete is not None)
        return Listed(
            [*manifests.damaged, *ordered],
            unready,
            scanned.ignored,
            frozenset(one.path for one in (*files, *manifests.damaged)),
            manifests.sealed,
            manifests.complete,
            tuple(sorted(scanned.closes)),
            UnclaimedFiles.of(scanned.unclaimed),
            self._settles_at(files, ready, manifests),
            self._seen,
        )

    def _settled(self, one: Candidate, now: datetime) -> bool:
        """Return whether a file stayed unchanged for long enough, over two listings or more."""
        seen = self._seen[one.name]
        return not self._settle or (now - seen >= self._settle and seen < now)

    def _settles_at(
        self, files: Sequence[Candidate], ready: dict[str, Candidate], manifests: _Manifests
    ) -> datetime | None:
        """Return when the first of the files that only wait to settle will have settled."""
        unsettled = [
            self._seen[one.name]
            for one in files
            if one.name not in ready and one.name not in manifests.held
        ]
        return min(unsettled) + self._settle if unsettled else None

    def _manifests(
        self, scanned: Scanned, ready: dict[str, Candidate], unfinished: Sequence[str]
    ) -> _Manifests:
        """Read the manifests; an unreadable one is claimed, and then rejected."""
        made = _Manifests()
        for one in sorted(scanned.sealed, key=lambda one: one.name)[:_SEALED_MAX]:
            try:
                made.sealed.append(self._manifest(one, unfinished))
            except FileRejectedError:
                made.damaged.append(one)
            except FileNotFoundError:
                continue
        unsealed = next((one for one in scanned.candidates if one.name == MANIFEST_NAME), None)
        manifests = {*scanned.sealed, unsealed}
        self._read = {one: manifest for one, manifest in self._read.items() if one in manifests}
        if unsealed is None:
            return made
        try:
            manifest = self._manifest(unsealed, unfinished)
        except (FileRejectedError, FileNotFoundError):
            return made
        ready.pop(MANIFEST_NAME, None)
        if manifest.complete({one.name: one.bytes for one in scanned.candidates}):
            made.complete = manifest
        else:
            made.held = frozenset(file.name for file in manifest.files)
        return made

    def _manifest(self, one: Candidate, unfinished: Sequence[str]) -> Manifest:
        """Read a manifest, unless it was read and has not changed since."""
        if one not in self._read:
            self._read[one] = read_manifest(self._folder / one.name, unfinished)
        return self._read[one]

    def _order(
        self, candidates: Sequence[Candidate], ready: dict[str, Candidate], manifests: _Manifests
    ) -> list[Candidate]:
        by_name = {one.name: one for one in candidates}
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
        rest.sort(key=_turn)
        return [*first.values(), *_up_to_marker(rest, candidates, manifests.held)]


def scan_folder(
    folder: Path,
    unfinished: Sequence[str] = UNFINISHED,
    enter: Enter | None = None,
    between: Callable[[], object] = do_nothing,
) -> Scanned:
    """List every name in a folder; opens no file. Raises `OSError`.

    `enter` is called with each nested folder before that is listed, so that a watch misses nothing;
    without `enter`, nested folders are not listed. `between` is called after each
    `LOOKED_AT_TOGETHER` names, since very many names take seconds.
    """
    scanned = Scanned()
    with os.scandir(folder) as entries:
        paused = _with_pauses(entries, between)
        below = _scan(paused, "", scanned, unfinished, nested=enter is not None)
    if enter is not None:
        _scan_below(folder, below, scanned, unfinished, enter)
    return scanned


def count_files(folder: Path, unfinished: Sequence[str] = UNFINISHED) -> int:
    """Return how many files directly in a folder a listing contains; raises `OSError`.

    Only names and kinds are read, since reading the status of very many files takes seconds.
    """
    with os.scandir(folder) as entries:
        return sum(
            is_sealed(one.name) or not is_unfinished(one.name, unfinished)
            for one in entries
            if one.is_file(follow_symlinks=False)
        )


def _with_pauses(
    entries: Iterable[os.DirEntry[str]], between: Callable[[], object]
) -> Iterator[os.DirEntry[str]]:
    for number, entry in enumerate(entries, 1):
        yield entry
        if number % LOOKED_AT_TOGETHER == 0:
            between()


def _scan(
    entries: Iterable[os.DirEntry[str]],
    prefix: str,
    scanned: Scanned,
    unfinished: Sequence[str],
    *,
    nested: bool,
) -> list[str]:
    """Classify the names of one folder; return the folders in it if they are to be listed."""
    below = list[str]()
    for entry in entries:
        name = f"{prefix}{entry.name}"
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        except OSError as exc:
            scanned.unclaimed.append(Unclaimed.of(name, _not_looked_at(exc), None))
            continue
        if nested and stat.S_ISDIR(status.st_mode):
            below.append(name)
        else:
            _sort(name, status, scanned, unfinished)
    return below


def _scan_below(
    root: Path, names: list[str], scanned: Scanned, unfinished: Sequence[str], enter: Enter
) -> None:
    device = os.lstat(root).st_dev
    while names:
        name = names.pop()
        why = why_left_out(name, unfinished)
        if not why and name.count("/") >= DEPTH_MAX:
            why = (
                f"a folder nested in {DEPTH_MAX} others: its files are not taken in; move them "
                "into a folder further up"
            )
        try:
            if not why:
                enter(root / name)
                with _opened_below(root, name) as opened:
                    if os.fstat(opened).st_dev == device:
                        with os.scandir(opened) as entries:
                            names += _scan(entries, f"{name}/", scanned, unfinished, nested=True)
                    else:
                        why = (
                            "a folder on another file system: its files are not taken in; move "
                            "them to the file system of `incoming`"
                        )
        except (FileNotFoundError, NotADirectoryError):  # removed, or no longer a folder
            continue
        except OSError as exc:
            why = _not_looked_at(exc)
        if why:
            scanned.unclaimed.append(Unclaimed.of(name, why, None))


@contextmanager
def _opened_below(root: Path, name: str) -> Iterator[int]:
    """Open a folder below another one; fails if a part of its path has become a link."""
    opened = os.open(root, _BELOW)
    try:
        for part in name.split("/"):
            outer = opened
            opened = os.open(part, _BELOW, dir_fd=outer)
            os.close(outer)
        yield opened
    finally:
        os.close(opened)


def _not_looked_at(error: OSError) -> str:
    return f"cannot be read: {error.strerror or error}"


def _sort(name: str, status: os.stat_result, scanned: Scanned, unfinished: Sequence[str]) -> None:
    why = why_not_regular(status.st_mode)
    if why:
        scanned.ignored += not is_unfinished(name, unfinished)
    elif "/" in name:
        why = why_left_out(name, unfinished)
        if not why and len(os.fsencode(name)) > _PATH_BYTES_MAX:
            why = (
                f"its path below `incoming` is longer than {_PATH_BYTES_MAX} bytes; use shorter "
                "names"
            )
        if not why:
            scanned.candidates.append(Candidate.of(name, status))
            return
    elif not is_unfinished(name, unfinished):
        scanned.candidates.append(Candidate.of(name, status))
        return
    elif is_sealed(name):
        scanned.sealed.append(Candidate.of(name, status))
        return
    elif match := _SEALED_CLOSE.fullmatch(name):
        scanned.closes.append(match[1])
        return
    elif name.startswith(".upload-"):
        why = "an upload that is being received"
    elif name.startswith("."):
        why = (
            "its name begins with a dot, and hidden files are not taken in; rename the file when "
            "it is complete"
        )
    else:
        why = (
            "its name marks it as incomplete; its producer must rename the file when it is complete"
        )
    scanned.unclaimed.append(Unclaimed.of(name, why, status.st_ctime))


def _up_to_marker(
    ready: Sequence[Candidate], candidates: Sequence[Candidate], held: frozenset[str]
) -> Sequence[Candidate]:
    """Cut the list before the first marker that must wait for an older file."""
    for place, marker in enumerate(ready):
        if marker.name == CLOSE_NAME:
            names = {one.name for one in ready} | held
            if any(_turn(one) < _turn(marker) for one in candidates if one.name not in names):
                return ready[:place]
    return ready


def _turn(one: Candidate) -> tuple[int, bool, str]:
    """Return the sort key in one listing: by time; a marker follows files of the same time."""
    return one.mtime_ns, one.name == CLOSE_NAME, one.path


def announced_claims(
    manifests: Iterable[Manifest],
    claims: Sequence[ClaimRecord],
    copies: Collection[str],
    listed_paths: Collection[str],
) -> dict[str, ClaimRecord]:
    """Return the open claims that belong to manifests, by the file's name.

    `copies` are the ids of claims whose file is in `claimed`. If its name is also in `incoming`,
    the claimed copy is an older file.
    """
    promised = {path: file.bytes for one in manifests for path, file in one.promises.items()}
    return {
        claim.path: claim
        for claim in claims
        if promised.get(claim.path) == claim.bytes
        and not (claim.path in listed_paths and claim.id in copies)
    }


def gather_files(
    manifest: Manifest, claimed: Mapping[str, ClaimRecord], listed: Listed
) -> tuple[list[ClaimRecord], list[Candidate], list[str]] | None:
    """Return where the files of a manifest are; `None` if one of them is still being written.

    These are the claims of files that are in `claimed`; the files in `incoming` to claim, in the
    manifest's order; and the names of missing files, which were settled before a crash, or removed.
    """
    eligible = {one.path: one for one in listed.eligible}
    claims, candidates, missing = list[ClaimRecord](), list[Candidate](), list[str]()
    for path in manifest.promises:
        if path in eligible:
            candidates.append(eligible[path])
        elif path in listed.paths:
            return None
        elif path in claimed:
            claims.append(claimed[path])
        else:
            missing.append(path)
    return claims, candidates, missing
