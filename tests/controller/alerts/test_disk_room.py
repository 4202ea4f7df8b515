"""A disk that is full or cannot be written is said, also by a service that has nothing to do."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from controller.alerts.conditions import alerts_of
from controller.alerts.disk_room import (
    FULL_BYTES,
    LOW_BYTES,
    Inspect,
    disk_alerts,
    disk_rooms,
)
from controller.alerts.timed_inspections import TimedInspections
from controller.settings import Settings


def one_disk(free: int, *, writable: bool = True) -> Inspect:
    return lambda folder: (7, free, writable)


@pytest.mark.parametrize(
    ("free", "writable", "state", "severity"),
    [
        (0, True, "full", "critical"),
        (FULL_BYTES - 1, True, "full", "critical"),
        (FULL_BYTES, True, "low", "warning"),
        (LOW_BYTES, True, "ok", None),
        (LOW_BYTES, False, "read_only", "critical"),
    ],
)
def test_an_alert_says_what_lies_on_the_disk(
    tmp_path: Path, free: int, writable: bool, state: str, severity: str | None
) -> None:
    """One for each disk, whatever the service has on it; it comes among the alerts of dataflows."""
    rooms = disk_rooms(Settings(root=tmp_path), one_disk(free, writable=writable))
    assert [room.state for room in rooms] == [state]
    assert rooms[0].folders == ("root folder", "drop folder", "tables folder", "cache folder")
    assert bool(rooms[0].words) == (severity is not None)
    alerts = alerts_of([], lag_seconds=0, others=disk_alerts(rooms))
    assert [one.severity for one in alerts] == ([severity] if severity else [])
    for alert in alerts:
        assert str(tmp_path) in alert.summary
        assert "tables folder" in alert.summary
        assert alert.action


def test_each_disk_is_looked_at(tmp_path: Path) -> None:
    """A folder that is missing is left out: its sources and tables say so."""
    settings = Settings(root=tmp_path, cache=tmp_path / "cache")

    def look(folder: str) -> tuple[int, int, bool]:
        if folder.endswith("tables"):
            raise FileNotFoundError(errno.ENOENT, "gone")
        return (1, 0, True) if folder.endswith("cache") else (2, LOW_BYTES, True)

    rooms = disk_rooms(settings, look)
    assert [(room.folders, room.state) for room in rooms] == [
        (("root folder", "drop folder"), "ok"),
        (("cache folder",), "full"),
    ]


def test_a_disk_that_hangs_holds_up_nobody(tmp_path: Path) -> None:
    """It is left out, is looked at by one thread only, and is there again once it answers."""
    answers, asked = threading.Event(), list[str]()

    def look(folder: str) -> tuple[int, int, bool]:
        asked.append(folder)
        if folder.endswith("cache"):
            answers.wait()
        return (1 if folder.endswith("cache") else 2), LOW_BYTES, True

    settings, looks = (
        Settings(root=tmp_path, cache=tmp_path / "cache"),
        TimedInspections(look, 0.01),
    )
    try:
        for _ in range(3):
            assert str(settings.cache) not in [one.path for one in disk_rooms(settings, looks)]
            looks.seconds = threading.TIMEOUT_MAX  # nobody waits for it a second time
        assert asked.count(str(settings.cache)) == 1
    finally:
        answers.set()
    looks._under_way[str(settings.cache)].result()
    assert [one.folders for one in disk_rooms(settings, looks)][-1] == ("cache folder",)
    assert asked.count(str(settings.cache)) == 1, "the late answer counts"


def test_the_operating_system_is_asked(tmp_path: Path) -> None:
    """A folder of this machine has room, or not; it is never an error."""
    (room, *_) = disk_rooms(Settings(root=tmp_path))
    assert room.writable
    assert room.free_bytes >= 0
