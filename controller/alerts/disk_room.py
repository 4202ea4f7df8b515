"""How much room the service's disks have, and whether it can write to them: also while it is idle.

A full disk fails runs (`controller.loop.runs.retry_policy`) and the intake of files, each with its
own error. A service to which nothing is delivered would not notice. So its folders are looked at
whenever somebody asks how it is, each in a thread: a file system whose server is gone may never
answer.

Guaranteed: a look that hangs delays its callers once, by `LOOK_SECONDS`, and has one thread
(tests/controller/alerts/test_disk_room.py).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Literal, TypeVar

from cbp.engine.storage.files import local_path
from controller.alerts.conditions import Alert
from controller.loop.runs.threads import Threads
from controller.settings import Settings

FULL_BYTES = 32 << 20
"""Least free space in which a run of some size can write its result."""

LOW_BYTES = 10**9
"""With less room than this somebody should make room before the tables grow."""

LOOK_SECONDS = 1.0
"""A disk that does not answer within this time is left out, until it does."""

_Folder = TypeVar("_Folder", bound=Hashable)
_Seen = TypeVar("_Seen")

Look = Callable[[str], tuple[int, int, bool]]
"""Returns the device of a folder, its free bytes, and whether it can be written."""


@dataclass(frozen=True, slots=True)
class DiskRoom:
    """One disk of the service.

    Attributes:
        folders: The service's folders on it, such as `tables folder`.
        path: The first of these folders.
        free_bytes: Room for this user; 0 if no further file can be made.
    """

    folders: tuple[str, ...]
    path: str
    free_bytes: int
    writable: bool = True

    @property
    def state(self) -> Literal["ok", "low", "full", "read_only"]:
        """The state to report."""
        if not self.writable:
            return "read_only"
        if self.free_bytes < FULL_BYTES:
            return "full"
        return "low" if self.free_bytes < LOW_BYTES else "ok"

    @property
    def stops(self) -> bool:
        """Whether the service cannot work with it."""
        return self.state in ("full", "read_only")

    @property
    def words(self) -> str:
        """The problem and its place, in words; `""` if there is none."""
        holds = f"it holds the {', '.join(self.folders)}"
        free = f"{self.free_bytes / 10**6:,.0f} MB free"
        if self.state == "read_only":
            return f"the service cannot write to {self.path} ({holds})"
        if self.state == "full":
            return f"the disk of {self.path} is full: {free} ({holds})"
        low = f"the disk of {self.path} is nearly full: {free} ({holds})"
        return low if self.state == "low" else ""

    @property
    def action(self) -> str:
        """What to do."""
        what = "free some space (`cbp disk NAME` shows what a dataflow uses)"
        if self.state == "read_only":
            what = "mount the disk for writing, or allow the service's user to write there"
        return f"{what}; the service then continues automatically"


@dataclass(eq=False)
class TimedLooks(Generic[_Folder, _Seen]):
    """Inspects folders in threads; safe to use from several threads.

    A call raises the errors of the inspection. It raises `TimeoutError` after `seconds`, and at
    once while an earlier inspection still hangs.
    """

    look: Callable[[_Folder], _Seen]
    seconds: float = LOOK_SECONDS
    _threads: Threads = field(default_factory=lambda: Threads("disk"))
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _under_way: dict[_Folder, Future[_Seen]] = field(default_factory=dict)
    _late: set[_Folder] = field(default_factory=set)

    def __call__(self, folder: _Folder, seconds: float | None = None) -> _Seen:
        """Return the result of a look at a folder; `seconds` replaces the time to wait for it."""
        with self._lock:
            future = self._under_way.get(folder)
            if future is not None and future.done() and folder in self._late:
                self._late.discard(folder)
                del self._under_way[folder]
                return future.result()  # it came after the last call had given up: not yet old
            if future is None or future.done():
                future = self._under_way[folder] = self._threads.submit(self.look, folder)
                self._late.discard(folder)
            elif folder in self._late:
                raise TimeoutError(folder)
        try:
            return future.result(self.seconds if seconds is None else seconds)
        except TimeoutError:
            with self._lock:
                self._late.add(folder)
            raise


def disk_rooms(settings: Settings, look: Look | None = None) -> list[DiskRoom]:
    """Return the disks of the service's folders, except those that do not answer.

    `look` replaces the operating system's answers.
    """
    folders = {"root folder": settings.root, "drop folder": settings.drop_root}
    if "://" not in settings.tables:
        folders["tables folder"] = Path(local_path(settings.tables))
    folders["cache folder"] = settings.cache
    found = dict[tuple[int, bool], DiskRoom]()
    for name, folder in folders.items():
        path = str(folder)
        try:
            device, free, writable = (look or _looks)(path)
        except OSError:  # a folder that is gone or hangs is the trouble of its sources and tables
            continue
        before = found.get((device, writable))
        names = (*before.folders, name) if before else (name,)
        found[device, writable] = DiskRoom(names, before.path if before else path, free, writable)
    return list(found.values())


def disk_alerts(rooms: Iterable[DiskRoom]) -> list[Alert]:
    """Return an alert for each disk that is full, nearly full, or cannot be written to."""
    return [
        Alert(
            f"disk:{room.path}",
            "disk",
            "critical" if room.stops else "warning",
            "",
            room.words,
            "new runs and files fail, and the service retries them" if room.stops else "",
            room.action,
            size=int(room.stops),
        )
        for room in rooms
        if room.state != "ok"
    ]


def _look(folder: str) -> tuple[int, int, bool]:
    status = os.statvfs(folder)
    free = status.f_bavail * status.f_frsize
    if status.f_files and not status.f_favail:
        free = 0  # no further file can be made, whatever room there is
    return os.stat(folder).st_dev, free, os.access(folder, os.W_OK | os.X_OK)


_looks = TimedLooks(_look)
