"""Arguments and results of an engine's calls about tables: plans, retention, roll-backs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from cbp.engine.columnar.row_codec import Row

__all__ = ["Contents", "Dead", "Kept", "Retention", "TablePlan", "TableRewind", "Target"]


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a table's past stays readable; all three limits hold.

    Attributes:
        versions_min: Versions before the newest that stay, however old they are.
        versions_max: Versions before the newest that may stay, however young they are.
        seconds: A version stays if it was the newest at some moment within this time.
        attempt_seconds: Longest time for which a task writes. Temporary files and files of
            failed attempts are left alone until they are older than this.
    """

    versions_min: int = 20
    versions_max: int = 10_000
    seconds: float = 86_400.0
    attempt_seconds: float = 3_600.0


@dataclass(frozen=True, slots=True)
class Dead:
    """A file to remove, and the reason in words.

    Attributes:
        path: Relative to the table.
    """

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
    """What a garbage collection removes from one table.

    Attributes:
        base: The oldest version that stays readable.
        entries: Number of log entries and checkpoints before `base`.
        dead: Files to remove, oldest epoch first.
        kept: The other files, by reason.
    """

    base: int
    entries: int
    dead: tuple[Dead, ...]
    kept: tuple[Kept, ...] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """The point to which a roll-back takes a table.

    Attributes:
        epoch: The last epoch that the table shows afterwards; -1: none.
        generation: The generation that begins there.
        timestamp_ms: Timestamp of the log entry, the same for all tables.
    """

    dataflow: str
    epoch: int
    generation: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class TableRewind:
    """What a roll-back does to one table.

    Attributes:
        shows: The version that the table then shows, with the epochs recorded after that version.
        files_removed, files_added: Number of live files.
        records_now, records_then: Number of live records.
        bytes_now, bytes_then: Size of the live files.
    """

    shows: int
    files_removed: int
    files_added: int
    records_now: int
    records_then: int
    bytes_now: int
    bytes_then: int


class Contents(Protocol):
    """The records of one version of a table.

    Attributes:
        rows: The number of records.
        parts: The number of parts. Two sides with equally many parts are compared part by part.
    """

    @property
    def rows(self) -> int: ...  # noqa: D102 - see above

    @property
    def parts(self) -> int: ...  # noqa: D102 - see above

    def part(self, number: int, *, epochs: bool) -> Iterator[list[Row]]:
        """Yield a part's records in batches; with `epochs`, each record starts with its epoch."""
        ...
