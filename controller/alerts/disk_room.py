"""The free space of the service's disks, and whether it can write to them, even while it is idle.

A full disk fails runs (`controller.loop.runs.retry_policy`) and the intake of files, each with its
own error. An idle service would not notice. So the folders are inspected whenever a request or the
alerts ask for the state of the service.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cbp.engine.storage.files import local_path
from controller.alerts.conditions import Alert
from controller.alerts.timed_inspections import TimedInspections
from controller.settings import Settings

FULL_BYTES = 32 << 20
"""Least free space in which a run of some size can write its result."""

LOW_BYTES = 10**9
"""With less free space than this, an operator should free some before the tables grow."""

Inspect = Callable[[str], tuple[int, int, bool]]
"""Returns the device of a folder, its free bytes, and whether it can be written."""


@dataclass(frozen=True, slots=True)
class DiskRoom:
    """One disk of the service.

    Attributes:
        folders: The service's folders on it, such as `tables folder`.
        path: The first of these folders.
        free_bytes: Free space for this user; 0 if no further file can be created.
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
        """Whether the service cannot work with this disk."""
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


def disk_rooms(settings: Settings, inspect: Inspect | None = None) -> list[DiskRoom]:
    """Return the disks of the service's folders, except those that do not answer.

    `inspect` replaces the operating system's answers.
    """
    folders = {"root folder": settings.root, "drop folder": settings.drop_root}
    if "://" not in settings.tables:
        folders["tables folder"] = Path(local_path(settings.tables))
    folders["cache folder"] = settings.cache
    found = dict[tuple[int, bool], DiskRoom]()
    for name, folder in folders.items():
        path = str(folder)
        try:
            device, free, writable = (inspect or _inspections)(path)
        except OSError:  # sources and tables report a folder that is missing or hangs
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


def _inspect(folder: str) -> tuple[int, int, bool]:
    status = os.statvfs(folder)
    free = status.f_bavail * status.f_frsize
    if status.f_files and not status.f_favail:
        free = 0  # no further file can be created, although there is space
    return os.stat(folder).st_dev, free, os.access(folder, os.W_OK | os.X_OK)


_inspections = TimedInspections(_inspect)
