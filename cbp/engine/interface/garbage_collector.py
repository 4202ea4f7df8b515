"""Role of an engine: to remove unneeded files, and to list files that would be removed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from cbp.model.dataflow.dataflow import StageNode
from cbp.model.flow.retention import Expiry, KeptFlow


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a table's past stays readable; all three limits hold.

    Attributes:
        versions_min: Number of versions before the newest that stay at any age.
        versions_max: Largest number of versions before the newest that stay.
        seconds: A version stays if it was the newest at some moment within this time.
        attempt_seconds: Longest time that a task may write. Temporary files and files of
            failed attempts are left alone until they are older than this.
    """

    versions_min: int = 20
    versions_max: int = 10_000
    seconds: float = 86_400.0
    attempt_seconds: float = 3_600.0


UNFINISHED = "an unfinished write"
"""The reason of a file that a writer, perhaps a killed one, has not completed."""


@dataclass(frozen=True, slots=True)
class Dead:
    """A file to remove, relative to the table, and the reason in words."""

    path: str
    bytes: int
    because: str


@dataclass(frozen=True, slots=True)
class Kept:
    """The number and size of the files that stay for one reason, given in words."""

    because: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The files that a garbage collection removes from one table, and those that it keeps.

    Attributes:
        base: The oldest version that stays readable.
        entries: Number of log entries and checkpoints before `base`.
        dead: Files to remove, oldest epoch first.
    """

    base: int
    entries: int
    dead: tuple[Dead, ...]
    kept: tuple[Kept, ...] = ()


class GarbageCollector(Protocol):
    """Removes files and log entries of a stage's tables."""

    def collect(
        self,
        folder: str,
        node: StageNode,
        *,
        queued: Callable[[], Collection[str]],
        retention: Retention,
        dry_run: bool = False,
    ) -> Mapping[str, TablePlan]:
        """Garbage-collect a stage's tables: remove a bounded number of unneeded files.

        May be called at any time, also while the stage runs, and repeated after a crash.

        Args:
            queued: Returns the paths, relative to `folder`, of all files that wait in connectors
                or that unpublished records name. Called after the tables were listed.
        """

    def expired(self, folder: str, kept: Mapping[str, KeptFlow]) -> Mapping[str, Expiry]:
        """Return the files of outputs that the next runs would let expire; only reads."""
