"""Workers and executors that are killed once."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from cbp.engine.delta.managed_table import open_table
from cbp.engine.storage.files import LocalFiles
from tests.driver import Driver


@dataclass(frozen=True)
class KillOnce:
    """Kills its own process at the first passage of a point, over all processes."""

    point: str
    marker: str

    def __call__(self, point: str) -> None:
        """See the class."""
        if point == self.point and self._is_first():
            os.kill(os.getpid(), signal.SIGKILL)

    def _is_first(self) -> bool:
        try:
            os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


@dataclass(frozen=True)
class KillExecutor(KillOnce):
    """Kills the executor of its own process, and itself, at the first passage of a point."""

    def __call__(self, point: str) -> None:
        """See the class."""
        if point == self.point and self._is_first():
            daemon = os.getppid()
            stat = Path(f"/proc/{daemon}/stat").read_text(encoding="ascii")
            executor = int(stat.rpartition(")")[2].split()[1])
            os.kill(executor, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class AtPassage:
    """Lets only the passages of a point from one on through to what kills."""

    kill: KillOnce
    first: int
    count: list[int]

    def __call__(self, point: str) -> None:
        """See the class."""
        if point == self.kill.point:
            self.count.append(0)
            if len(self.count) >= self.first:
                self.kill(point)


def lost_attempts(driver: Driver, folder: Path) -> set[str]:
    """Return the attempts that left files in the state tables and are named by nobody."""
    named, actual = set(), set()
    for table in folder.glob("*/stage.*"):
        live = open_table(str(table), LocalFiles()).snapshot.live
        named |= {f"{table}/{path}" for path in live}
        actual |= {str(path) for path in table.rglob("_runs/**/*.parquet")}
    for intention in driver.log.since("stage", 0):
        for change in intention.changes:
            named |= {f"{folder}/{change.table}/{add['path']}" for add in change.adds}
    lost = {path.rsplit("-", 1)[1] for path in actual - named}
    assert not any(path.endswith(tuple(f"-{attempt}" for attempt in lost)) for path in named)
    return lost
