"""A disk that loses its power under real processes: what none of them synced is gone.

Every process that a test starts with `LossyDisk.environment` runs `power/sitecustomize.py`, which
puts `Recorder.fsync` in the place of `os.fsync`: each sync is a line in one journal, and what was
synced is kept by hard links (`tests/simulation/disk.py` says what counts as durable). So does every
process that one of them starts, also with an environment of its own. When all processes were
killed, `lose` rebuilds the folder from that.

Seen are the syncs of Python. What the JVM writes (shuffles) nobody needs after a restart; what
SQLite writes is outside, as do index copies, which a boot of the machine ends.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

from tests.simulation.disk import Disk

__all__ = ["LossyDisk", "Recorder", "record_syncs"]

HERE = Path(__file__).resolve().parent


def record_syncs(place: str) -> None:
    """Record what this process syncs, and what processes do that it forks or starts."""
    os.fsync = Recorder(Path(place)).fsync  # type: ignore[assignment]  # by handle, as we do
    subprocess.Popen = _RecordedProcess  # type: ignore[misc]


class _RecordedProcess(subprocess.Popen[Any]):
    """A process that records too, also where it is given nothing of this one's environment."""

    def __init__(self, *arguments: Any, env: Any = None, **options: Any) -> None:
        if env is not None:
            env = {**env, **{name: os.environ[name] for name in ("CBP_TEST_DISK", "PYTHONPATH")}}
        super().__init__(*arguments, env=env, **options)  # type: ignore[call-overload]


class Recorder:
    """One process's part.

    A sync is durable once its line is in the journal, which is before it returns: a process that is
    killed in between did not know that it was. Nothing is flushed to the real disk.

    Args:
        place: Holds `disk`, `shadow` and `journal`.
    """

    def __init__(self, place: Path) -> None:
        self._root, self._shadow, self._journal = _parts(place)

    def fsync(self, handle: int) -> None:
        """Stand in for `os.fsync`, in any thread."""
        with self._journal.open("ab") as journal:
            fcntl.flock(journal, fcntl.LOCK_EX)
            disk = Disk(self._root, self._shadow)
            disk.fsync(handle)
            if disk.durable():
                journal.write(_line(disk))


class LossyDisk:
    """The folder of a service, and what of it is durable.

    Args:
        place: An empty folder, for this alone.

    Attributes:
        root: The disk.
        environment: What processes that work on it need in theirs.
    """

    def __init__(self, place: Path) -> None:
        self.root, self._shadow, self._journal = _parts(place)
        for folder in (self.root, self._shadow):
            folder.mkdir(parents=True)
        path = [str(HERE / "power"), str(HERE.parents[1])]
        self.environment = {"CBP_TEST_DISK": str(place), "PYTHONPATH": os.pathsep.join(path)}
        disk = Disk(self.root, self._shadow)
        disk.sync_all()
        self._journal.write_bytes(_line(disk))

    def lose(self, chance: random.Random) -> int:
        """Leave what survives; every process that wrote was killed.

        Returns:
            How many files went, came back, or have another size.
        """
        disk = Disk(self.root, self._shadow)
        for line in self._journal.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):  # else its writer was killed, and its sync had not returned
                disk.learn(json.loads(line))
        before = self._files()
        disk.lose(chance)
        self._journal.write_bytes(_line(disk))
        return len({path for path, _ in before ^ self._files()})

    def _files(self) -> set[tuple[Path, int]]:
        return {(path, path.stat().st_size) for path in self.root.rglob("*") if path.is_file()}


def _parts(place: Path) -> tuple[Path, Path, Path]:
    return place / "disk", place / "shadow", place / "journal"


def _line(disk: Disk) -> bytes:
    return json.dumps(disk.durable()).encode() + b"\n"
