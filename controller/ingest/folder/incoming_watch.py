"""Watches the `incoming` folders of sources: wakes their listing, and notes renamed files.

    renamed in          it is complete: its producer had finished it   IN_MOVED_TO
    another new file    it waits for `settle_seconds`                  IN_CREATE, IN_CLOSE_WRITE

A file counts as renamed in while it is unchanged since the rename was noticed: same name, size,
time and identity (`Candidate`). If it is written to after the rename, or created again, it waits
like any other file.

Guaranteed: nothing depends on an event. Without one (a network file system, a full queue of the
kernel, a system other than Linux) a file is found by the next listing and waits for
`settle_seconds`. `sees` says which folders have events; all others are listed again and again. A
device that hangs delays the watch, but no listing of another source
(tests/controller/ingest/folder/test_incoming_watch.py).
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from controller.ingest.folder.source_place import evidence


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file in a listing, by its path below `incoming`; equal if nobody wrote to it in between."""

    name: str
    bytes: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, name: str, status: os.stat_result) -> Candidate:
        """Return a name with its status in the file system."""
        return cls(name, status.st_size, status.st_mtime_ns, status.st_ino)

    @property
    def path(self) -> str:
        """The name as text; see `source_place.evidence`."""
        return evidence(self.name)

    def is_at(self, path: Path) -> bool:
        """Return whether the file is still there, unchanged since the listing."""
        return look_at(path, self.name) == self


def look_at(path: Path, name: str) -> Candidate | None:
    """Return the present entry at a path, under its name in a listing; `None` if there is none."""
    try:
        return Candidate.of(name, path.lstat())
    except OSError:
        return None


_READ_MS = 200
"""How long the thread that watches waits for an event before it checks whether to stop."""

_GATHER_MS = 2
_PAUSE_SECONDS = 0.02
"""Events within these times wake a listing once: the first events after 2 ms, a stream of events
fifty times a second."""

_RENAMED_MAX = 100_000
"""Renamed files that are remembered per folder; others wait for `settle_seconds`."""

_LOCAL = frozenset({"bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2"})
_LOCAL |= {"ntfs3", "overlay", "ramfs", "reiserfs", "tmpfs", "vfat", "xfs", "zfs"}
"""File systems into which only this machine writes, so that its kernel sees every change."""

_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(rb"\\([0-7]{3})")
_log = structlog.get_logger(__name__)


class IncomingWatch:
    """Methods can be called from several threads; `run` from one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._dataflows: dict[Path, str] = {}
        self._renamed: dict[Path, dict[str, Candidate]] = {}
        self._roots: dict[Path, Path] = {}
        self._below: dict[Path, set[Path]] = {}
        self._folders: dict[int, Path] = {}
        self._inotify: Any = None
        self._refused: dict[Path, str] = {}
        self._failure = ""
        self._wake: Callable[[frozenset[str]], None] = lambda dataflows: None

    def call(self, dataflow: str) -> None:
        """Wake the listing of a dataflow, because a file was claimed, for example by an upload."""
        self._wake(frozenset([dataflow]))

    def follow(self, folder: Path, dataflow: str, root: Path | None = None) -> None:
        """Watch a folder, which may be a new one; `root` is the `incoming` that it is below."""
        with self._lock:
            self._dataflows[folder] = dataflow
            if root is not None:
                self._roots[folder] = root
                self._below.setdefault(root, set()).add(folder)
            inotify = self._inotify
        if inotify is not None:
            self._add(inotify, folder)

    def keep_below(self, root: Path, folders: Collection[Path]) -> None:
        """Stop watching folders below an `incoming` folder, other than these."""
        with self._lock:
            gone = self._below.get(root, set()).difference(folders)
            if not gone:
                return
            self._below[root] -= gone
            for folder in gone:
                self._dataflows.pop(folder, None)
                self._roots.pop(folder, None)
                self._refused.pop(folder, None)
            inotify, left = self._inotify, [w for w, one in self._folders.items() if one in gone]
            for watch in left:
                del self._folders[watch]
        for watch in left:
            with suppress(OSError, ValueError):  # the folder is gone; the watch has ended
                inotify.rm_watch(watch)

    def renamed_in(self, folder: Path) -> Collection[Candidate]:
        """Return the files that were renamed into a folder and are not taken in yet."""
        with self._lock:
            return tuple(self._renamed.get(folder, {}).values())

    def has_renamed(self, folders: Iterable[Path]) -> bool:
        """Return whether a file was renamed into one of these folders and is not taken in yet."""
        with self._lock:
            return any(self._renamed.get(folder) for folder in folders)

    def sees(self, folder: Path) -> bool:
        """Return whether there is an event for each file that arrives in an `incoming` folder."""
        with self._lock:
            wanted = {folder} | self._below.get(folder, set())
            watched = wanted.issubset(self._folders.values())
        return watched and has_every_event(folder)

    def forget(self, folder: Path, gone: Iterable[Candidate]) -> None:
        """Forget renamed files that were claimed, or that a listing no longer contained."""
        with self._lock:
            renamed = self._renamed.get(folder, {})
            for one in gone:
                if renamed.get(one.name) == one:
                    del renamed[one.name]

    def problem(self, folder: Path) -> str:
        """Return, for an operator, why a folder is not watched; `""` if nothing failed."""
        with self._lock:
            places = (folder, *self._below.get(folder, ()))
            refused = next((self._refused[one] for one in places if one in self._refused), "")
            why = self._failure or refused
        if not why:
            return ""
        return (
            f"the folder is not watched ({why}), so the service finds files by listing the folder "
            "at intervals. It retries the watch automatically"
        )

    def run(self, stop: threading.Event, wake: Callable[[frozenset[str]], None]) -> None:
        """Watch until `stop` is set; see `_run`. `problem` shows the error that ends the watch."""
        try:
            self._run(stop, wake)
        except Exception as error:
            with self._lock:
                self._failure = str(error) or type(error).__name__
            raise

    def _run(self, stop: threading.Event, wake: Callable[[frozenset[str]], None]) -> None:
        """Call `wake` with the dataflows whose folders changed, until `stop` is set; blocks.

        On a system without inotify only `call` calls `wake`. Raises `OSError`.
        """
        self._wake = wake
        if not sys.platform.startswith("linux"):
            stop.wait()
            return
        from inotify_simple import INotify

        with INotify() as inotify:
            try:
                with self._lock:
                    self._inotify, self._failure = inotify, ""
                    self._refused.clear()
                    followed = dict(self._dataflows)
                for folder in followed:
                    self._add(inotify, folder)
                wake(frozenset(followed.values()))  # what came before was not seen
                while not stop.is_set():
                    if woken := self._note(inotify.read(timeout=_READ_MS, read_delay=_GATHER_MS)):
                        wake(woken)
                        stop.wait(_PAUSE_SECONDS)
            finally:
                with self._lock:
                    self._inotify = None
                    self._folders.clear()
                    self._renamed.clear()

    def _add(self, inotify: Any, folder: Path) -> None:
        """Watch a folder; called without the lock, since a device may hang."""
        from inotify_simple import flags

        mask = flags.CREATE | flags.CLOSE_WRITE | flags.MOVED_TO | flags.MOVE_SELF
        mask |= flags.ONLYDIR | flags.DONT_FOLLOW
        try:
            watch = inotify.add_watch(folder, mask)
        except (FileNotFoundError, ValueError):  # no such folder, or the watch has ended
            return
        except OSError as error:  # such as the limit `fs.inotify.max_user_watches`
            with self._lock:
                first = not self._refused
                self._refused[folder] = error.strerror or str(error)
            if first:
                _log.warning("watch.refused", folder=str(folder), reason=str(error))
            return
        with self._lock:
            self._refused.pop(folder, None)
            if self._inotify is inotify:
                self._folders[watch] = folder

    def _note(self, events: Iterable[Any]) -> frozenset[str]:
        from inotify_simple import flags

        woken, renamed = set[str](), list[Path]()
        with self._lock:
            for event in events:
                if event.mask & flags.Q_OVERFLOW:
                    woken.update(self._dataflows.values())
                elif event.mask & (flags.IGNORED | flags.MOVE_SELF):
                    # Removed, moved, or unmounted: a listing finds out what is there now.
                    if (gone := self._folders.pop(event.wd, None)) is not None:
                        woken.add(self._dataflows[gone])
                elif (folder := self._folders.get(event.wd)) is not None:
                    woken.add(self._dataflows[folder])
                    if event.mask & flags.MOVED_TO:
                        renamed.append(folder / event.name)
        for path in renamed:
            self._remember(path)
        return frozenset(woken)

    def _remember(self, path: Path) -> None:
        with self._lock:
            root = self._roots.get(path.parent, path.parent)
        name = str(path.relative_to(root))
        candidate = look_at(path, name)  # without the lock, since a device may hang
        with self._lock:
            renamed = self._renamed.setdefault(root, {})
            if candidate is not None and len(renamed) < _RENAMED_MAX:
                renamed[name] = candidate


def has_every_event(folder: Path, mounts: Path = _MOUNTS) -> bool:
    """Return whether the kernel reports every file that arrives in a folder; follows links.

    Others can write without this kernel on a network file system, in a folder shared by a virtual
    machine's host, and in a file system in user space. So the answer is false unless the file
    system is known to be local (by Linux's `mountinfo`), and always on systems other than Linux.
    """
    try:
        lines = mounts.read_bytes().splitlines()
    except OSError:
        return False
    path, kind, longest = os.fsencode(os.path.realpath(folder)) + b"/", b"", -1
    for line in lines:
        fields, _, more = line.partition(b" - ")
        point = _ESCAPED.sub(lambda m: bytes([int(m[1], 8)]), fields.split(b" ")[4])
        point = point.rstrip(b"/") + b"/"
        if path.startswith(point) and len(point) >= longest:  # the last one of a point covers it
            kind, longest = more.split(b" ")[0], len(point)
    return kind.decode("ascii", "replace") in _LOCAL
